"""Objects as attributes: what is kept, what a placeholder says, who opens it, what is refused."""

import collections
import copy
import json
import pickle
import threading

import numpy as np
import optuna
import pytest
import torch
from penstock.base.errors import BackendError, UsageError
from penstock.tasks.objectives import objects, typed_json
from penstock.tasks.objectives.history import History
from penstock.tasks.objectives.objects import (
    MARK,
    OpenedAttributes,
    StoredObject,
    keep,
    opened,
    value_of,
)
from penstock.tasks.objectives.wire import LONGEST, attribute, user_attribute, writing_of


class Model:
    """Something that is no JSON."""

    def __init__(self, weights):
        self.weights = weights


@pytest.fixture
def store(tmp_path):
    return f"file://{tmp_path}"


@pytest.fixture
def kept(store):
    """The placeholder of a model, as it is read."""
    return value_of(keep(store, Model([1.5])))


def files(tmp_path):
    return sorted((tmp_path / "objects").iterdir())


def test_an_object_comes_back_from_the_store_and_its_placeholder_says_type_and_size(store, kept):
    assert isinstance(kept, StoredObject)
    assert str(kept).startswith("<Model, ")
    assert str(kept).endswith(" bytes, in the checkpoint store>")
    assert opened(store, kept).weights == [1.5]


def test_an_equal_object_is_stored_once(store, tmp_path, kept):
    keep(store, Model([1.5]))
    assert [file.name for file in files(tmp_path)] == [kept.digest]


@pytest.mark.parametrize("content", [b"", b"3.11\nother"])
def test_a_file_with_other_bytes_is_not_opened(store, tmp_path, kept, content):
    files(tmp_path)[0].write_bytes(content)
    with pytest.raises(BackendError, match="is corrupt: its bytes do not match its name"):
        opened(store, kept)


def test_an_object_that_is_gone_is_said_to_be(store, tmp_path, kept):
    files(tmp_path)[0].unlink()
    with pytest.raises(BackendError, match=r"the checkpoint store lacks <Model"):
        opened(store, kept)


def test_another_python_does_not_read_its_byte_code(store, kept, monkeypatch):
    monkeypatch.setattr(objects, "PYTHON", "2.7")
    with pytest.raises(UsageError, match=r"was written by Python 3\.\d+ and this is 2\.7"):
        opened(store, kept)


def test_what_is_too_large_is_refused_with_what_to_do(store, monkeypatch):
    monkeypatch.setattr(objects, "LIMIT", 1000)
    with pytest.raises(
        TypeError, match=r"'m' is no JSON, and it takes more than 1000 bytes: upload it"
    ):
        attribute("m", Model("x" * 1001), lambda value: keep(store, value))


def test_what_cannot_be_pickled_is_refused_with_its_key(store):
    with pytest.raises(
        TypeError, match="the attribute 'lock' is no JSON, and it cannot be pickled"
    ):
        attribute("lock", threading.Lock(), lambda value: keep(store, value))


def test_without_a_store_nothing_is_written_anywhere():
    with pytest.raises(TypeError, match="there is no checkpoint store for it"):
        keep("", Model(1))


def test_json_stays_json_and_what_is_too_long_for_a_message_is_kept(store):
    def put(value):
        return attribute("key", value, lambda value: keep(store, value))[1]

    assert put({"a": [1]}) == '{"a": [1]}'
    long = put("x" * LONGEST)
    assert len(long) < 200
    assert opened(store, value_of(long)) == "x" * LONGEST


def same(one, other):
    """Return whether two values are equal and of one type, also what they hold."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(
            map(same, one.values(), other.values())
        )
    return bool((one == other).all()) if hasattr(one, "all") else one == other


@pytest.fixture
def read_back(store):
    """Read a user's attribute as its script does, and as others do."""

    def read(value):
        _, text = user_attribute("key", value, lambda value: keep(store, value))
        shown = value_of(text)
        return (opened(store, shown) if isinstance(shown, StoredObject) else shown), shown

    return read


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 0.5, "a", [1, [2.0]], {"a": {"b": [None]}}),
        *(
            (1, 2),
            [(1, (2,))],
            {1: 2},
            {"a": {1: (), None: [{}]}},
            {"tuple": (1,)},
            {"dict": {2: 1}},
        ),
    ],
    ids=repr,
)
def test_a_users_attribute_of_pythons_own_is_the_same_in_every_process(read_back, tmp_path, value):
    here, elsewhere = read_back(value)
    assert same(here, value)
    assert same(elsewhere, value)
    assert not (tmp_path / "objects").exists()


@pytest.mark.parametrize(
    "value",
    [
        *(np.ones(2), torch.ones(2), [np.ones(1)], {"w": torch.ones(2)}, {1, 2}),
        *(collections.Counter("aab"), collections.OrderedDict(a=1), torch.Size([1])),
        torch.nn.Linear(2, 1).state_dict(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_users_attribute_that_json_would_change_is_the_same_in_its_script(read_back, value):
    here, elsewhere = read_back(value)
    assert same(here, value)
    assert isinstance(elsewhere, StoredObject)


@pytest.mark.parametrize(
    "value",
    [np.float64(0.5), np.float32(0.5), np.array(0.5), torch.tensor(0.5)],
    ids=lambda value: type(value).__name__,
)
def test_a_number_of_numpys_or_torchs_is_a_number(read_back, value):
    for put, read in ((value, 0.5), ({"a": value}, {"a": 0.5}), ((value,), (0.5,))):
        assert same(read_back(put)[1], read)


def test_a_text_of_numpys_is_a_text(read_back):
    for put, read in ((np.str_("a"), "a"), (np.array("a"), "a"), ((np.str_("a"),), ("a",))):
        assert same(read_back(put)[1], read)


def test_a_users_attribute_that_holds_itself_is_an_object(read_back):
    value = []
    value.append(value)
    here, _ = read_back(value)
    assert here[0] is here


def test_a_tuple_that_is_too_long_for_a_message_is_an_object(read_back):
    here, elsewhere = read_back(("x" * LONGEST,))
    assert here == ("x" * LONGEST,)
    assert isinstance(elsewhere, StoredObject)


def test_optunas_own_attributes_stay_json(store):
    written = writing_of(
        optuna.create_trial(value=1.0, user_attrs={"a": (1,)}, system_attrs={"a": (1,)}),
        lambda value: keep(store, value),
    )
    assert written["system_attrs"] == [("a", "[1]")]
    assert value_of(dict(written["user_attrs"])["a"]) == (1,)


NO_JSON = {
    "a module": lambda: torch.nn.Linear(3, 1),
    "modules": lambda: torch.nn.Sequential(torch.nn.Linear(2, 2)),
    "an optimizer": lambda: torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1),
    "a device": lambda: torch.device("cpu"),
    "torch's dtype": lambda: torch.float32,
    "NumPy's dtype": lambda: np.dtype("f4"),
    "a generator": lambda: np.random.default_rng(0),
    "a dict with a module": lambda: {"model": torch.nn.Linear(3, 1)},
}


@pytest.mark.parametrize("make", NO_JSON.values(), ids=NO_JSON)
def test_what_numpy_and_torch_have_besides_numbers_is_kept_as_an_object(store, make):
    value = make()
    text = attribute("key", value, lambda value: keep(store, value))[1]
    assert type(opened(store, value_of(text))) is type(value)


@pytest.mark.parametrize(
    "form", ['{"dict": 3}', '{"dict": [[[1], 2]]}', '{"other": 1}', '{"tuple": null}']
)
def test_a_text_that_is_no_value_of_ours_is_the_json_that_it_is(form):
    text = f"{typed_json.MARK}{form}}}"
    assert value_of(text) == json.loads(text)


@pytest.mark.parametrize("plain", [json.loads(f'{MARK}"Model", "bytes": 1, "sha256": "0"}}')])
def test_a_value_that_looks_like_a_placeholder_is_none(store, plain):
    text = attribute("key", plain, lambda value: keep(store, value))[1]
    assert value_of(text) == plain


def test_a_placeholder_elsewhere_is_a_text(kept):
    there = pickle.loads(pickle.dumps(kept))
    assert (type(there), there) == (str, str(kept))
    assert json.loads(json.dumps({"model": kept})) == {"model": str(kept)}


def test_a_history_knows_which_trials_have_objects(store):
    history = History()
    history.apply({"n": 0, "user_attrs": [("a", "1")]})
    history.apply({"n": 1, "user_attrs": [("a", keep(store, Model(1)))]})
    assert history.have_objects == {1}
    assert isinstance(history.trials[1].user_attrs["a"], StoredObject)


READS = {
    "an item": lambda attributes: attributes["model"],
    "get": lambda attributes: attributes.get("model"),
    "items": lambda attributes: dict(attributes.items())["model"],
    "values": lambda attributes: list(attributes.values())[1],
    "a copy": lambda attributes: dict(attributes)["model"],
    "unpacking": lambda attributes: {**attributes}["model"],
    "copy.copy": lambda attributes: copy.copy(attributes)["model"],
    "a deep copy": lambda attributes: copy.deepcopy(attributes)["model"],
    "pop": lambda attributes: attributes.pop("model"),
    "a pickle": lambda attributes: pickle.loads(pickle.dumps(attributes))["model"],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_object_is_opened_however_it_is_read(store, kept, read):
    attributes = OpenedAttributes({"n": 1, "model": kept}, lambda stored: opened(store, stored))
    assert read(attributes).weights == [1.5]


def test_an_object_is_opened_once_and_not_before_it_is_read(store, kept):
    asked = []

    def open_object(stored):
        asked.append(stored)
        return opened(store, stored)

    attributes = copy.deepcopy(OpenedAttributes({"n": 1, "model": kept}, open_object))
    assert attributes["n"] == 1
    assert "model" in attributes
    assert list(attributes) == ["n", "model"]
    assert asked == []
    assert attributes["model"] is attributes["model"]
    assert asked == [kept]
