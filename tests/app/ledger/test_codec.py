"""The codec: what is encoded comes back equal, and bodies of other versions are told apart."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.app.extensions import KINDS as OF_02
from penstock.app.extensions import names, of_ends
from penstock.app.ledger import codec
from penstock.base.errors import BackendError, UsageError
from penstock.scheduler.model import events
from penstock.scheduler.model.snapshot import Plan
from penstock.scheduler.model.study import Code, StudySpec

SPEC = StudySpec(
    id="digits-1",
    name="digits",
    contract="torch",
    code=Code(target="m:T", path="/p", digest="d"),
    metric="accuracy",
    direction="maximize",
    n_trials=3,
    space=(("lr", "{}"),),
)
EPOCH = events.EpochReported(
    at=1.5,
    trial="digits-1-0002",
    fence=3,
    epoch=2,
    metrics=(("accuracy", 0.5),),
    state_hash="h",
    signature="s",
    seconds=0.25,
    closes=True,
)


def with_fields(text, **fields):
    return json.dumps(json.loads(text) | fields)


KINDS = dict(chain(codec.KINDS.items(), *(own.items() for own in of_ends("events", "EVENTS"))))


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS)
def test_every_kind_comes_back_equal_and_with_the_same_types(cls):
    @settings(max_examples=30, deadline=None)
    @given(st.from_type(cls))
    def comes_back(event):
        kind, text = codec.encode(event)
        # repr keeps 1, 1.0 and True apart, and finds NaN equal to itself
        assert repr(codec.decode(kind, text)) == repr(event)

    comes_back()


@given(st.from_type(StudySpec))
@settings(max_examples=30, deadline=None)
def test_a_study_comes_back_equal(spec):
    assert repr(codec.spec_from_json(codec.spec_to_json(spec))) == repr(spec)


@pytest.mark.parametrize("value", [True, 1, 1.0, -0.0, "1", "", None, 2**70, 5e-324, float("inf")])
def test_a_parameter_keeps_its_type(value):
    event = events.Suggested(at=1.0, trial="s-0001", name="n", value=value, distribution="{}")
    back = codec.decode(*codec.encode(event))
    assert (type(back.value), repr(back.value)) == (type(value), repr(value))


def test_every_event_class_has_a_kind_under_its_own_name():
    classes = {
        name: cls
        for name, cls in vars(events).items()
        if isinstance(cls, type) and issubclass(cls, events.Event) and cls is not events.Event
    }
    del classes["Unread"]  # stands for one that cannot be read, and is never written
    assert classes == codec.KINDS


def test_a_kind_of_an_extension_has_its_name_but_those_of_0_2():
    for extension, own in zip(names("events"), of_ends("events", "EVENTS"), strict=True):
        for name, cls in own.items():
            assert OF_02.get(name) == extension or name == f"{extension}.{cls.__name__}"


@pytest.mark.parametrize("name", OF_02)
def test_a_kind_of_0_2_is_kept_where_its_extension_is_not_there(name, monkeypatch):
    monkeypatch.setattr(codec, "of_ends", lambda *_: ())
    body = json.dumps({"at": 1.5, "trial": "s-0001", "unknown": 1})
    unread = codec.decode(name, body)
    assert unread == events.Unread(at=1.5, kind=name, extension=OF_02[name], study="s")
    assert name in codec.kinds()


def test_a_body_from_before_a_field_was_added_decodes_with_the_default():
    kind, text = codec.encode(events.AttemptLost(at=1.0, trial="s-0001", fence=1, reason="lease"))
    old = json.loads(text)
    del old["refused"], old["cause"]
    lost = codec.decode(kind, json.dumps(old))
    assert (lost.refused, lost.cause) == (False, "")


def test_an_unknown_field_is_an_error_that_names_field_kind_and_version():
    kind, text = codec.encode(EPOCH)
    with pytest.raises(
        BackendError, match=rf"EpochReported .*event format {codec.VERSION}: lumens"
    ) as refused:
        codec.decode(kind, with_fields(text, lumens=3.0))
    assert "unexpected" in str(refused.value).lower()


def test_a_field_that_is_gone_is_read_where_it_said_what_is_now_always_so():
    kind, text = codec.encode(events.Planned(at=1.0, cause="d-1", plans=(Plan(("s-0001",)),)))
    [plan] = json.loads(text)["plans"]

    def with_old(**old):
        return codec.decode(kind, with_fields(text, plans=[plan | old]))

    assert with_old(shuffle=False) == codec.decode(kind, text)
    for other in ({"shuffle": True}, {"shuffle": 0}, {"shuffle": False, "lumens": None}):
        with pytest.raises(BackendError, match="Unexpected keyword"):
            with_old(**other)


def test_an_unknown_kind_is_an_error_that_says_who_wrote_it():
    with pytest.raises(BackendError, match=r"'DeviceMelted'.*newer Penstock"):
        codec.decode("DeviceMelted", "{}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("null", "body is null"),
        ("[]", "body"),
        ("{", "body"),
        ("", "body"),
        ("{}", "Field required"),
    ],
)
def test_a_damaged_body_is_an_error_and_never_an_event(text, said):
    with pytest.raises(BackendError, match=said):
        codec.decode("EpochReported", text)


def test_a_field_of_the_wrong_type_is_not_coerced():
    kind, text = codec.encode(EPOCH)
    with pytest.raises(BackendError, match="fence"):
        codec.decode(kind, with_fields(text, fence="3"))


def test_a_lone_surrogate_in_a_traceback_does_not_stop_the_ledger():
    failed = events.AttemptFailed(
        at=1.0, trial="s-0001", fence=1, kind="exception", message="bad \udcff byte é"
    )
    assert codec.decode(*codec.encode(failed)).message == "bad ? byte é"


def test_a_malformed_study_is_refused_with_the_field():
    text = with_fields(codec.spec_to_json(SPEC), n_trials="many")
    with pytest.raises(UsageError, match="n_trials"):
        codec.spec_from_json(text)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.StudySubmitted(at=1.0, study=SPEC), ("digits-1", None)),
        (events.StudyCancelled(at=1.0, study="digits-1"), ("digits-1", None)),
        (events.StudyFailed(at=1.0, study="digits-1", reason="no"), ("digits-1", None)),
        (EPOCH, ("digits-1", "digits-1-0002")),
        (events.DeviceLeft(at=1.0, device="cpu.a.0", reason="gone"), (None, None)),
        (events.Tick(at=1.0), (None, None)),
    ],
)
def test_an_event_is_filed_under_its_study_and_trial(event, expected):
    assert codec.subject(event) == expected
