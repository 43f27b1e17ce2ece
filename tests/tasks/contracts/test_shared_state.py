# ruff: noqa: PLW0603 - the objectives here do what users do
"""Objects of its script that an objective changes, found in its source."""

import collections
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from penstock.tasks.contracts.function_source import Slot
from penstock.tasks.contracts.shared_state import changes_of

best_model, best_score, last = None, 0.0, None
scores, results, COUNT, cache, config = [], {}, 0, {}, {"lr": 0.1}
best = {"acc": 0.0}
nested = {"model": {"width": 1}}
by_kind = collections.defaultdict(list)
losses = np.zeros(9)
buffer: list[float] = []


class OnDisk:
    def __setitem__(self, key, value):
        """Written somewhere that the script can read."""


shelf = OnDisk()


def rebinds(trial):
    global best_model, best_score
    score = trial.suggest_float("x", 0, 1)
    if score > best_score:
        best_model, best_score = object(), score
    return score


def sets_each_time(trial):
    global last
    last = trial.number


def takes_the_better(trial):
    global best_score
    best_score = max(best_score, trial.number)


def sets_it_again(trial):
    global last
    last = None
    if trial.number:
        last = trial.number


def set_last(number):
    global last
    last = number


def sets_by_a_helper(trial):
    if trial.number:
        set_last(trial.number)


def by_a_named_comparison(trial):
    global best_model
    score = trial.suggest_float("x", 0, 1)
    is_better = best_score < score
    if is_better:
        best_model = object()
    return 1 - score


def loads_once(trial):
    global last
    if last is None:
        rows = range(3)
        last = list(rows)
    return trial.suggest_float("x", 0, 1)


def keeps_the_first(trial):
    global last
    if last is None:
        last = trial.number
    return trial.suggest_float("x", 0, 1)


def keeps_the_longest(trial):
    global last
    score, seconds = trial.suggest_float("x", 0, 1), trial.suggest_float("s", 0, 1)
    if last is None or seconds > last:
        last = seconds
    return score


def counts(trial):
    global COUNT
    COUNT += 1


def counts_in_words(trial):
    global COUNT
    COUNT = COUNT + 1


def appends(trial, data=None):
    scores.append(trial.number)


def fills(trial):
    results[trial.number] = 1.0


def keeps_the_best(trial):
    acc = trial.number
    if acc > best["acc"]:
        best["acc"], best["model"] = acc, object()


def keeps_the_best_of_none(trial):
    acc = trial.number
    if "acc" not in best or acc > best["acc"]:
        best["acc"] = acc


def collects_by_kind(trial):
    by_kind[trial.params["kind"]].append(trial.number)


def counts_in_a_dict(trial):
    results["n"] = results.get("n", 0) + 1


def writes_an_array(trial):
    losses[trial.number] = 0.5


def helper(score):
    scores.append(score)


def by_a_helper(trial):
    helper(trial.number)


def caches(trial):
    if trial.number not in cache:
        cache[trial.number] = 1
    return cache[trial.number]


def caches_by_get(trial):
    known = cache.get("data")
    if known is None:
        known = cache["data"] = 1
    return known


def empties_a_buffer(trial):
    buffer.clear()
    buffer.append(trial.number)


def writes_to_disk(trial):
    shelf[trial.number] = 1


def has_its_own(trial):
    scores = []
    scores.append(1)

    def inner():
        scores.append(2)

    inner()


def fills_a_configuration(trial):
    config["lr"] = 1 / trial.number
    return by_helper_with(config)


def takes_parameters(trial):
    config["lr"] = trial.suggest_float("lr", 0, 1)
    width = trial.suggest_int("width", 1, 8)
    nested["model"]["width"] = width
    return by_helper_with(config)


def collects_parameters(trial):
    results[trial.number] = trial.suggest_float("lr", 0, 1)


def caches_and_computes(trial):
    if "a" not in cache:
        cache["a"] = 3
    return trial.number + cache["a"]


def computes_from_a_cache(key):
    try:
        return cache[key]
    except KeyError:
        cache[key] = key * 2
    return cache[key]


def caches_in_a_helper(trial):
    return computes_from_a_cache(trial.number)


def counts_by_a_name(trial):
    known = results.get("n", 0)
    results["n"] = known + 1


def counts_in_a_call(trial):
    results.update(n=results.get("n", 0) + 1)


def counts_what_is_tried(trial):
    try:
        n = results["n"]
    except KeyError:
        n = 0
    results["n"] = n + 1


def by_helper_with(config):
    return config["lr"]


def in_a_closure(kind):
    found, best_here = [], None

    def appends(trial):
        found.append(trial.number)

    def rebinds(trial):
        nonlocal best_here
        if trial.number > 3:
            best_here = trial.number

    return {"appends": appends, "rebinds": rebinds}[kind], lambda: best_here


class Objective:
    best = None

    def __init__(self):
        self.history = []

    @property
    def fitted(self):
        """Its model, once it has one."""
        raise RuntimeError("it is not fitted")

    def __call__(self, trial):
        self.scratch = trial.number
        self.history.append(self.scratch)
        if trial.number:
            self.best = trial.number


def slots(objective, *, rebound=False):
    return [each.slot.shown for each in changes_of(objective) if each.rebinds is rebound]


IN_PLACE = {
    counts: "COUNT",
    counts_in_words: "COUNT",
    appends: "scores",
    fills: "results",
    keeps_the_best: "best",
    keeps_the_best_of_none: "best",
    collects_by_kind: "by_kind",
    counts_in_a_dict: "results",
    counts_by_a_name: "results",
    counts_in_a_call: "results",
    counts_what_is_tried: "results",
    collects_parameters: "results",
    writes_an_array: "losses",
    by_a_helper: "scores",
    in_a_closure("appends")[0]: "found",
    partial(appends, data=1): "scores",
}


@pytest.mark.parametrize(("objective", "name"), IN_PLACE.items())
def test_what_is_changed_in_place_is_found(objective, name):
    assert (slots(objective), slots(objective, rebound=True)) == ([name], [])


def test_it_is_found_behind_a_lambda():
    assert slots(lambda trial: appends(trial, 1)) == ["scores"]


@pytest.mark.parametrize(
    ("objective", "names"),
    [
        (rebinds, ["best_model", "best_score"]),
        (sets_each_time, ["last"]),
        (takes_the_better, ["best_score"]),
        (in_a_closure("rebinds")[0], ["best_here"]),
    ],
)
def test_a_name_that_gets_another_value_is_found(objective, names):
    assert (slots(objective), slots(objective, rebound=True)) == ([], names)


def test_an_objective_that_is_an_object_changes_its_own_attributes():
    objective = Objective()
    assert slots(objective) == ["self.history"]
    assert slots(objective, rebound=True) == ["self.scratch", "self.best"]


@pytest.mark.parametrize(
    "objective",
    [
        *(caches, caches_by_get, caches_and_computes, caches_in_a_helper, empties_a_buffer),
        *(writes_to_disk, has_its_own, takes_parameters, len, int),
    ],
)
def test_what_is_no_result_is_left_alone(objective):
    assert changes_of(objective) == []


@pytest.mark.parametrize(
    ("objective", "is_plain"),
    [(appends, True), (fills_a_configuration, False), (writes_an_array, False)],
)
def test_only_what_collects_results_in_pythons_own_containers_is_guarded(objective, is_plain):
    assert [each.is_plain for each in changes_of(objective)] == [is_plain]


@pytest.mark.parametrize(
    ("objective", "always"),
    [(rebinds, False), (sets_each_time, True), (sets_it_again, True), (sets_by_a_helper, False)],
)
def test_whether_each_trial_sets_it_is_known(objective, always):
    assert {each.always for each in changes_of(objective)} == {always}


@pytest.mark.parametrize(
    ("objective", "by_other"),
    [
        *((rebinds, False), (by_a_named_comparison, False), (loads_once, False)),
        *((sets_by_a_helper, False), (keeps_the_first, True), (keeps_the_longest, True)),
    ],
)
def test_whether_the_best_trial_is_meant_is_known(objective, by_other):
    assert {each.by_other_measure for each in changes_of(objective)} == {by_other}


@pytest.mark.parametrize(
    ("objective", "write", "read"),
    [
        (
            appends,
            'trial.set_user_attr("scores", trial.number)',
            '[t.user_attrs["scores"] for t in study.trials if "scores" in t.user_attrs]',
        ),
        (
            fills,
            'trial.set_user_attr("results", 1.0)',
            (
                '{t.number: t.user_attrs["results"] for t in study.trials'
                ' if "results" in t.user_attrs}'
            ),
        ),
        (
            counts,
            'trial.set_user_attr("COUNT", 1)',
            'sum(t.user_attrs["COUNT"] for t in study.trials if "COUNT" in t.user_attrs)',
        ),
        (
            keeps_the_best,
            'trial.set_user_attr("acc", acc); trial.set_user_attr("model", object())',
            'study.best_trial.user_attrs["acc"], study.best_trial.user_attrs["model"]',
        ),
    ],
)
def test_the_code_to_write_instead_is_given(objective, write, read):
    (change,) = changes_of(objective)
    assert (change.write, change.read) == (write, read)
    assert change.place.startswith("test_shared_state.py:")


@pytest.mark.parametrize(("objective", "has_trial"), [(appends, True), (by_a_helper, False)])
def test_whether_the_trial_is_at_hand_is_known(objective, has_trial):
    assert [each.has_trial for each in changes_of(objective)] == [has_trial]


def test_in_jupyter_a_place_is_its_cell():
    code = """
from penstock.tasks.contracts.shared_state import changes_of
scores = []
def objective(trial):
    scores.append(trial.number)
print([each.place for each in changes_of(objective)])
"""
    run = "from IPython.core.interactiveshell import InteractiveShell as S\n"
    run += f"S.instance().run_cell({code!r}, store_history=True)"
    said = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    assert "['Cell In[1]:4']" in said.stdout


def test_slots_are_read_and_set_where_the_script_has_them():
    objective, read = in_a_closure("rebinds")
    slot = Slot("closure", "best_here")
    assert slot.get(objective) is None
    slot.set(objective, 5)
    assert read() == 5
    instance = Objective()
    Slot("self", "best").set(instance, 7)
    assert instance.best == 7
    with pytest.raises(LookupError):
        Slot("self", "fitted").get(instance)
    with pytest.raises(LookupError):
        Slot("global", "there_is_none").get(rebinds)
    with pytest.raises(LookupError):
        Slot("closure", "there_is_none").get(objective)
