"""Studies whose extension is not there, or is broken, are shown and paused; others go on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ledgers.study_ledger import START, start_study, study_spec
from penstock.app.ledger import codec, restore
from penstock.app.ledger.codec import decode, state_from_json, state_to_json
from penstock.app.ledger.reader import Reader
from penstock.app.server.runner import commands
from penstock.base.errors import BackendError, BrokenExtension, LedgerRefused, UsageError
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import DeviceJoined, StudySubmitted, Unread
from penstock.scheduler.state.extensions import Extension, SegmentValues
from worlds.drive_world import device

#: A study that needs the extension below, and one that does not.
NEEDS, FREE = (study_spec(name, id=f"{name}-1a2b", n_trials=40) for name in ("needs", "free"))


def helper(**points):
    """Make the extension *helper*, which the study *needs* needs."""

    def plug(parts):
        return Extension(name="helper", needed_by=lambda spec: spec.name == "needs", **points)

    return plug


def raising(*_):
    raise ZeroDivisionError("oh")


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Yield a function that restarts the scheduler with extensions and returns its runner."""
    opened = []

    def begin(*plugs, specs=(), turns=4):
        while opened:
            runner, ledger = opened.pop()
            runner.snapshot()
            ledger.close()
        monkeypatch.setattr(restore, "PLUGS", plugs)
        runner, ledger = start_study(tmp_path, *specs)
        opened.append((runner, ledger))
        for _ in range(turns):
            runner.turn(1.0)
        return runner

    yield begin
    for _, ledger in opened:
        ledger.close()


def shown(tmp_path):
    """The status and the message of each study, as readers see them."""
    reader = Reader(f"sqlite:///{tmp_path / 'ledger.db'}")
    return {study.name: (study.status, study.message) for study in reader.studies()}


def epochs(tmp_path):
    reader = Reader(f"sqlite:///{tmp_path / 'ledger.db'}")
    return {study.name: len(reader.epochs(study.id)) for study in reader.studies()}


def test_a_study_that_lacks_its_extension_is_paused_until_it_is_there_again(begin, tmp_path):
    runner = begin(helper(), specs=(NEEDS, FREE))
    assert runner.engine.state.studies[NEEDS.id].needs == ["helper"]
    runner.engine.state.ext["helper"] = {"version": 1, "kept": [NEEDS.id]}

    runner = begin(turns=8)
    before = epochs(tmp_path)
    for _ in range(8):
        runner.turn(1.0)
    after = epochs(tmp_path)
    assert after["needs"] == before["needs"]
    assert after["free"] > before["free"]
    status, message = shown(tmp_path)["needs"]
    assert status == "paused"
    assert "needs the extension helper, which this installation of Penstock does not" in message
    assert "put the folder extensions/helper back" in message
    assert shown(tmp_path)["free"] == ("running", "")
    with pytest.raises(UsageError, match="needs is paused: it needs the extension helper"):
        commands.to_event(
            {"kind": "resume", "study": NEEDS.id}, runner.engine, START, {}.__getitem__
        )

    runner = begin(turns=1)
    assert runner.engine.state.studies[NEEDS.id].lacks.keys() == {"helper"}, "said once"
    assert runner.engine.state.ext["helper"]["kept"] == [NEEDS.id], "its state is kept"
    runner = begin(helper(), turns=12)
    assert shown(tmp_path)["needs"] == ("running", "")
    assert epochs(tmp_path)["needs"] > after["needs"]


@pytest.fixture
def crashed(tmp_path, monkeypatch):
    """Have an extension decide things after the last snapshot; begin the scheduler without it.

    Or with what is in its place.
    """

    def crashed(*instead, **points):
        monkeypatch.setattr(restore, "PLUGS", [helper(**points)])
        runner, ledger = start_study(tmp_path, NEEDS, FREE)
        runner.snapshot()
        for _ in range(8):
            runner.turn(1.0)
        ledger.close()
        monkeypatch.setattr(restore, "PLUGS", instead)
        return start_study(tmp_path)

    return crashed


def test_what_was_decided_with_an_extension_before_a_crash_is_followed_without_it(
    crashed, tmp_path
):
    runner, ledger = crashed()
    before = epochs(tmp_path)
    for _ in range(8):
        runner.turn(1.0)
    ledger.close()
    after = epochs(tmp_path)
    assert "extension helper" in shown(tmp_path)["needs"][1]
    assert after["needs"] == before["needs"]
    assert after["free"] > before["free"]


def test_where_that_cannot_be_followed_the_folder_is_named(crashed):
    """Without the extension the study would have taken a device, which it had not."""
    words = (
        r"event \d+ of the ledger cannot be followed without the extension helper, which .*"
        r"Put extensions/helper back and start the scheduler"
    )
    with pytest.raises(LedgerRefused, match=words):
        crashed(too_full=lambda trial, slot: "kept" if trial.study == NEEDS.id else "")


def test_where_it_is_broken_by_then_the_folder_to_mend_is_named(crashed):
    words = r"the extension helper is broken: ZeroDivisionError: oh. Mend the folder extensions/he"
    with pytest.raises(LedgerRefused, match=words):
        crashed(helper(on_accepted=raising))


def test_a_study_that_its_user_had_paused_stays_so(begin, tmp_path):
    runner = begin(helper(), specs=(NEEDS,))
    body = {"kind": "pause", "study": NEEDS.id}
    runner._apply(commands.to_event(body, runner.engine, START, {}.__getitem__))
    runner._write(())
    begin(turns=1)
    assert "extension helper" in shown(tmp_path)["needs"][1]
    begin(helper(), turns=1)
    assert shown(tmp_path)["needs"] == ("paused", "")


def test_a_replay_over_the_time_without_it_comes_to_the_same(begin, tmp_path):
    begin(helper(), specs=(NEEDS, FREE))
    begin(turns=6)
    runner = begin(helper(), turns=6)
    assert runner.engine.state.studies[NEEDS.id].runnable
    state = state_to_json(runner.engine.state)
    replayed = Engine(plugs=[helper()])
    for _, event in runner._ledger.replay(0):
        replayed.handle(event)
    state = json.loads(state_to_json(replayed.state)), json.loads(state)
    assert state[0]["studies"] == state[1]["studies"]


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ({"on_accepted": raising}, "ZeroDivisionError: oh"),
        ({"on_charged": raising}, "ZeroDivisionError: oh"),
        ({"segment": raising}, "ZeroDivisionError: oh"),
        ({"segment": lambda *_: {"system": ()}}, "segment returned {'system': ()}"),
        ({"until": lambda _: "soon"}, "until returned 'soon'"),
        ({"deadlines": raising}, "ZeroDivisionError: oh"),
        ({"deadlines": lambda: ["soon"]}, "deadlines returned ['soon']"),
        ({"questions": raising}, "ZeroDivisionError: oh"),
    ],
)
def test_an_extension_that_breaks_is_named_and_only_its_studies_are_paused(
    points, why, begin, tmp_path
):
    begin(helper(), specs=(NEEDS, FREE))
    runner = begin(helper(**points), turns=10)
    status, message = shown(tmp_path)["needs"]
    assert status == "paused"
    assert f"the extension helper, which it needs, is broken ({why})" in message
    before = epochs(tmp_path)
    for _ in range(8):
        runner.turn(1.0)
    after = epochs(tmp_path)
    assert after["free"] > before["free"]
    assert after["needs"] == before["needs"]
    begin(helper(), turns=10)
    assert shown(tmp_path)["needs"] == ("running", "")
    assert epochs(tmp_path)["needs"] > after["needs"], "it was mended"


def test_a_broken_extension_is_told_with_the_study_for_which_it_broke():
    engine = Engine(plugs=[helper(refusal=lambda *_: 7)])
    engine.handle(DeviceJoined(at=0.0, device=device(), incarnation="i1"))
    engine.handle(StudySubmitted(at=0.0, study=FREE))
    with pytest.raises(BrokenExtension, match="helper is broken: refusal returned 7") as told:
        engine.handle(StudySubmitted(at=0.0, study=NEEDS))
    assert told.value.studies == (NEEDS.id,)


@pytest.mark.parametrize(
    ("plug", "words"),
    [
        (raising, "ZeroDivisionError: oh"),
        (helper(version=2), "its state has version 1, and it knows version 2"),
    ],
)
def test_an_extension_that_cannot_be_plugged_in_is_named(plug, words):
    state = Engine(plugs=[helper()]).state
    state.ext["helper"] = {"watts": {}}
    assert words in next(iter(Engine(state, plugs=[plug]).extensions.unfit.values()))


def test_what_is_no_extensions_fault_is_no_broken_extension():
    engine = Engine(plugs=[helper(segment=lambda *_: SegmentValues())])
    engine.handle(StudySubmitted(at=0.0, study=replace(NEEDS, sampler="random")))
    engine._core.offer_slots = [].pop
    with pytest.raises(IndexError):
        engine.handle(StudySubmitted(at=0.0, study=FREE))


def test_an_event_of_an_extension_that_is_not_there_is_kept_and_its_study_needs_it(monkeypatch):
    body = json.dumps({"at": 1.5, "cause": "3.0", "trial": f"{NEEDS.id}-0001", "colours": [1]})
    event = decode("helper.Painted", body)
    assert event == Unread(
        at=1.5, cause="3.0", kind="helper.Painted", extension="helper", study=NEEDS.id
    )
    engine = Engine()
    engine.handle(StudySubmitted(at=0.0, study=NEEDS))
    engine.handle(event)
    assert engine.state.studies[NEEDS.id].needs == ["helper"]
    assert state_from_json(state_to_json(engine.state)).studies[NEEDS.id].needs == ["helper"]
    with pytest.raises(BackendError, match=r"'Painted', which event format .* newer Penstock"):
        decode("Painted", body)
    for malformed in ("[]", "{}", "no", '{"at": "x"}'):
        with pytest.raises(BackendError, match=r"kind helper\.Painted cannot be read"):
            decode("helper.Painted", malformed)


def test_a_state_that_its_extension_cannot_read_is_kept(monkeypatch):
    monkeypatch.setattr("penstock.app.extensions.states", lambda: {"helper": tuple[int, ...]})
    engine = Engine(plugs=[helper()])
    engine.state.ext["helper"] = {"new": "form"}
    state = state_from_json(state_to_json(engine.state))
    assert "its state cannot be read" in Engine(state, plugs=[helper()]).extensions.unfit["helper"]
    assert json.loads(state_to_json(state))["ext"] == {"helper": {"new": "form"}}
    assert codec.VERSION
