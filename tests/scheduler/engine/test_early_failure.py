"""A study whose first trials all fail alike fails early, and no other study does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from penstock.app.spec.options import Limits
from penstock.scheduler.model.early_failure import (
    MOST,
    VARIED,
    failing_alike,
    is_in_part,
    telling,
)
from penstock.scheduler.model.events import (
    AttemptFailed,
    Proposed,
    StudyExtended,
    StudyPaused,
    StudyResumed,
    TrialReturned,
    TrialWritten,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Failure, Trial, TrialState
from penstock.scheduler.model.writing import Suggestion, Writing
from penstock.tasks.process.failure import failure_of
from worlds.drive_world import World, spec

LIMIT = Limits().fail_early
TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/train.py", line {}, in objective
    return fit(trial)
  File "/home/ada/model.py", line 7, in fit
    raise ValueError("no such colour: {}")
ValueError: no such colour: {}
"""


@pytest.fixture
def world():
    world = World()
    world.join("cpu.a.0")
    return world


def study(**fields):
    defaults = {"contract": "objective", "strategy": StrategySpec(), "space": None}
    return spec(**defaults | {"fail_early": LIMIT} | fields)


def attempt(world, fence=None):
    dispatch = world.open[fence or min(world.open)]
    world.at += 1.0
    return {"at": world.at, "trial": dispatch.segment.trial, "fence": dispatch.segment.fence}


def fail(world, error="ValueError", *, line=7, kind="exception", fence=None, traceback=None):
    """The oldest open trial fails in ``line``, with a text of its own."""
    fields = attempt(world, fence)
    if traceback is None:
        traceback = TRACEBACK.format(90, world.at, world.at).replace("line 7", f"line {line}")
    message = f"{error}: no such colour: {world.at}"
    world.send(AttemptFailed(**fields, kind=kind, message=message, traceback=traceback))


def message(world):
    return world.engine.take_changes().studies["s-1"].message


def test_first_trials_that_fail_alike_end_the_study_and_say_what_and_where(world):
    world.submit(study())
    for _ in range(LIMIT):
        assert world.finish is None
        fail(world)
    assert world.finish.status == "failed"
    assert not world.open
    changes = world.engine.take_changes()
    assert [t.failure.kind for t in changes.trials.values() if t.failure] == ["exception"] * LIMIT
    assert changes.studies["s-1"].message == (
        f"the first {LIMIT} trials failed alike, as all would: ValueError: no such colour: 1.0"
        " (at /home/ada/model.py:7). Correct the code and submit the study again under a new name,"
        " or let it go on in spite of failures: optimize(..., catch=(Exception,)),"
        " or limits=penstock.Limits(fail_early=0)"
    )


def test_trials_of_an_earlier_call_of_optimize_do_not_hide_that_all_of_this_one_fail(world):
    first = study(n_trials=2, max_segment=1)
    world.submit(first)
    while world.open:
        world.send(TrialReturned(**attempt(world), value=1.0))
    world.at += 1.0
    more = replace(first, n_trials=20)
    past = FinishedStudy(0.0, tuple(map(PastTrial.of, ended(world))))
    world.send(StudyExtended(at=world.at, study=more, past=past))
    for _ in range(LIMIT):
        fail(world)
    assert world.trace[-1].status == "failed"
    assert f"the first {LIMIT} trials failed alike" in message(world)


def ended(world):
    """The trials of the study as the ledger has them."""
    rows = world.engine.take_changes().trials.values()
    return sorted(rows, key=lambda trial: trial.number)


def test_a_study_from_before_there_was_a_limit_and_one_without_it_go_on(world):
    assert spec().fail_early == 0, "what older ledgers decode to"
    world.submit(study(fail_early=0))
    for _ in range(9):
        assert world.finish is None
        fail(world)
    assert message(world) == "every trial failed"


@pytest.mark.parametrize(
    "other",
    [
        {"error": "TypeError"},
        {"line": 8},
        {"kind": "nan"},
        {"kind": "memory"},
        {"traceback": ""},
    ],
)
def test_one_failure_of_another_make_lets_the_study_go_on(world, other):
    world.submit(study())
    fail(world, **other)
    for _ in range(LIMIT + 1):
        fail(world)
    assert world.finish is None


def test_a_value_an_epoch_or_a_pruned_trial_lets_the_study_go_on(world):
    world.submit(study())
    fail(world)
    world.send(TrialReturned(**attempt(world), value=1.0))
    for _ in range(LIMIT + 1):
        fail(world)
    assert world.finish is None


def test_an_epoch_that_was_accepted_lets_the_study_go_on(world):
    world.submit(study(strategy=StrategySpec("full", max_epochs=2), max_segment=1))
    world.run_segment()
    for _ in range(LIMIT + 1):
        fail(world)
    assert world.finish is None


def test_a_trial_that_began_before_the_first_failure_is_waited_for():
    world = World()
    world.join("cpu.a.0", "cpu.a.1")
    world.submit(study())
    first = min(world.open)
    for _ in range(LIMIT + 1):
        fail(world, fence=max(world.open) if first in world.open else None)
    assert world.finish is None and first in world.open, "it may get further"
    fail(world, fence=first)
    assert world.finish.status == "failed"
    assert message(world).startswith(f"the first {LIMIT + 2} trials failed alike")


def test_it_may_still_succeed_and_then_the_study_goes_on():
    world = World()
    world.join("cpu.a.0", "cpu.a.1")
    world.submit(study())
    first = min(world.open)
    for _ in range(LIMIT + 1):
        fail(world, fence=max(world.open))
    world.send(TrialReturned(**attempt(world, first), value=1.0))
    fail(world)
    assert world.finish is None


def test_a_study_with_fewer_trials_than_the_limit_ends_by_itself(world):
    world.submit(study(n_trials=2))
    fail(world)
    fail(world)
    assert (world.finish.status, message(world)) == ("failed", "every trial failed")


@pytest.mark.parametrize("code", ["1 +", "import no_such_library", "int('x')"])
def test_code_that_cannot_be_loaded_fails_alike_with_what_a_trainer_says_of_it(world, code):
    failures = []
    for _ in range(LIMIT):
        try:
            exec(compile(code, "/home/ada/train.py", "exec"), {})
        except Exception as error:
            failures.append(failure_of(error, "code"))
    world.submit(study())
    for failed in failures:
        fields = {"kind": failed.kind, "message": str(failed), "traceback": failed.traceback}
        world.send(AttemptFailed(**attempt(world), **fields))
    assert world.finish.status == "failed"
    assert "(at /home/ada/train.py:1)" in message(world)


def test_a_call_that_fails_before_the_users_first_line_is_told_by_its_text(world):
    """As of a function that takes no trial: no frame of its code is in the traceback."""
    world.submit(study())
    for _ in range(LIMIT):
        text = "TypeError: objective() takes 0 positional arguments but 1 was given"
        fields = {"kind": "exception", "message": text, "traceback": f"{text}\n"}
        world.send(AttemptFailed(**attempt(world), **fields))
    assert world.finish.status == "failed"
    assert f"as all would: {text}. Correct" in message(world)


HEADS = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": [4, 5]}})
LR = json.dumps(
    {"name": "FloatDistribution", "attributes": {"low": 1e-4, "high": 1.0, "log": True}}
)
SPACE = (("heads", HEADS), ("lr", LR))


class Drawn(World):
    """A world whose sampler gives what ``draws`` say, then the last of them again."""

    def __init__(self, *draws):
        super().__init__()
        self.draws = list(draws)
        self.join("cpu.a.0")

    def propose(self, ask):
        first = len(self.engine.state.studies[ask.study].trials)
        draws = [self.draws[min(first + k, len(self.draws) - 1)] for k in range(ask.n)]
        trials = tuple(tuple(each.items()) for each in draws)
        fields = {"cause": ask.id, "study": ask.study, "index": ask.index, "trials": trials}
        self.send(Proposed(at=self.at, exhausted=False, **fields))


def weighing(*draws, **fields):
    world = Drawn(*draws)
    fields = {"contract": "epochs", "space": SPACE, "n_trials": 40, "evidence": True} | fields
    world.submit(study(**fields))
    return world


def end_all(world, most=40):
    """Trials fail until the study does, or pauses; returns how many."""
    for n in range(most):
        if not world.open:
            return n
        fail(world)
    return most


def state_of(world):
    [study] = world.engine.state.studies.values()
    return study.status


ONE_SIDE = [{"heads": 5, "lr": lr} for lr in (0.001, 0.5, 0.002, 0.7)]


def test_where_all_that_failed_share_a_value_the_others_are_tried_first():
    world = weighing(*ONE_SIDE, {"heads": 4, "lr": 0.1}, max_segment=1)
    for _ in ONE_SIDE:
        fail(world)
    assert world.finish is None, "half of the space was not tried"
    world.run_segment()
    assert end_all(world, 20) == 20
    assert world.finish is None, "what passed says that the code is right"


def test_where_the_others_fail_alike_too_the_study_fails():
    world = weighing(*ONE_SIDE, {"heads": 4, "lr": 0.1})
    assert end_all(world) == len(ONE_SIDE) + 1
    assert world.finish.status == "failed"
    assert message(world).startswith("the first 5 trials failed alike, as all would")


def test_a_study_whose_failures_share_a_value_to_the_end_pauses_and_can_go_on():
    world = weighing(*ONE_SIDE, *[{"heads": 5, "lr": 0.3}] * 30)
    assert end_all(world) == MOST
    assert world.finish is None
    assert state_of(world) == "paused"
    said = message(world)
    assert said.startswith(f"the first {MOST} trials failed alike, and all have heads = 5,")
    assert "`penstock resume s` has the study go on" in said and is_in_part(said)
    world.at += 1.0
    world.send(StudyResumed(at=world.at, study="s-1"))
    assert (state_of(world), message(world)) == ("running", "")
    assert end_all(world) == MOST, "those that its user knows of do not count again"
    assert state_of(world) == "paused"


def test_an_extension_lets_a_study_go_on_that_has_paused_itself_and_no_other():
    world = weighing(*ONE_SIDE, *[{"heads": 5, "lr": 0.3}] * 30)
    end_all(world)
    [running] = world.engine.state.studies.values()
    more = replace(running.spec, n_trials=50)
    world.send(StudyExtended(at=world.at, study=more, past=None))
    assert (state_of(world), message(world)) == ("running", "")
    assert world.open
    world.send(StudyPaused(at=world.at, study="s-1"))
    world.send(StudyExtended(at=world.at, study=replace(more, n_trials=60), past=None))
    assert state_of(world) == "paused", "its user has paused it"


def test_a_study_that_fails_says_so_in_other_words_than_one_that_pauses():
    world = weighing(*ONE_SIDE, {"heads": 4, "lr": 0.1})
    end_all(world)
    assert not is_in_part(message(world))


COUNT = json.dumps({"name": "IntDistribution", "attributes": {"low": 1, "high": 3, "log": False}})
ONLY = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": ["adam"]}})
WIDER = COUNT.replace("3", "9")


def drawing(world, *drawn):
    """The oldest open trial draws, each a name, a value and a distribution, and fails."""
    segment = world.open[min(world.open)].segment
    suggestions = tuple(Suggestion(name, value, text, 0.0) for name, value, text in drawn)
    written = Writing(suggestions=suggestions)
    fields = {"trial": segment.trial, "fence": segment.fence, "writing": written}
    world.send(TrialWritten(at=world.at, **fields))
    fail(world)


def test_what_objectives_drew_from_is_all_that_has_to_be_tried(world):
    """Three integers are never as many numbers as an unknown range takes."""
    world.submit(study(evidence=True, sampler="optuna", n_trials=40))
    for n in (1, 1, 1):
        drawing(world, ("n", n, COUNT), ("optimizer", "adam", ONLY))
        assert world.finish is None
    drawing(world, ("n", 3, COUNT), ("optimizer", "adam", ONLY))
    assert world.finish.status == "failed"
    assert message(world).startswith("the first 4 trials failed alike, as all would")


def test_where_trials_drew_from_different_ranges_neither_counts_as_all(world):
    world.submit(study(evidence=True, sampler="optuna", n_trials=40))
    for n, text in ((1, COUNT), (3, COUNT), (3, WIDER), (2, COUNT)):
        drawing(world, ("n", n, text))
    assert world.finish is None


def test_draws_of_failures_are_kept_until_a_trial_succeeds(world):
    world.submit(study(evidence=True, sampler="optuna", n_trials=40))
    drawing(world, ("n", 2, COUNT))
    world.send(TrialReturned(**attempt(world), value=1.0))
    drawing(world, ("n", 2, COUNT))
    kept = [len(trial.suggestions) for trial in world.engine.state.trials.values()]
    assert kept[:3] == [1, 0, 0]


def test_an_older_study_fails_at_once_as_it_did():
    world = weighing(*ONE_SIDE, evidence=False)
    assert end_all(world) == LIMIT
    assert world.finish.status == "failed"


def test_an_objective_that_fails_before_it_draws_is_no_riddle(world):
    world.submit(study(evidence=True, sampler="optuna"))
    assert end_all(world) == LIMIT
    assert world.finish.status == "failed"


@pytest.mark.parametrize(
    ("failed", "passed", "space", "words"),
    [
        ([{"heads": 5}, {"heads": 5}], [], None, ("heads = 5",)),
        ([{"heads": 5}, {"heads": 7}], [], None, ()),
        ([{"heads": 5}, {"heads": 5}], [{"heads": 4}], None, ("heads = 5",)),
        ([{"heads": 5}, {"heads": 5}], [{"heads": 5}], None, ()),
        ([{"heads": 5}, {"heads": 7}], [{"heads": 4}], None, ("heads = 5 or 7",)),
        ([{"heads": 1}, {"heads": 1}], [{"heads": True}], None, ("heads = 1",)),
        ([{"heads": 5}, {"lr": 0.5}], [], None, ()),
        ([{"lr": 0.5}, {"lr": 0.7}], [], SPACE, ("lr above 0.01",)),
        ([{"lr": 0.0005}, {"lr": 0.001}], [], SPACE, ("lr below 0.01",)),
        ([{"lr": 0.001}, {"lr": 0.7}], [], SPACE, ()),
        ([{"lr": x} for x in (0.5, 0.6, 0.7, 0.8)], [{"lr": 0.1}], SPACE, ("lr above 0.1",)),
        ([{"lr": x} for x in (0.5, 0.6, 0.7, 0.8)], [{"lr": 0.65}], SPACE, ()),
        ([{"heads": 5}] * 3, [], (("heads", HEADS.replace("4, 5", "5")),), ()),
        ([], [], SPACE, ()),
    ],
)
def test_what_tells_failed_trials_from_others(failed, passed, space, words):
    assert telling(failed, passed, space) == words


@pytest.mark.parametrize(
    "text",
    ["7", "{}", '{"attributes": 7}', '{"attributes": {"low": "a", "high": {}, "choices": 7}}'],
)
def test_of_a_distribution_that_says_nothing_nothing_is_taken(text):
    """Objectives may report any JSON, and an event must not stop the scheduler."""
    space = (("lr", text),)
    assert telling([{"lr": 0.1}, {"lr": 0.2}], space=space) == ()
    assert telling([{"lr": 0.1}, {"lr": 0.1}], space=space) == ("lr = 0.1",)


def test_of_a_range_that_is_not_known_several_numbers_are_evidence():
    trials = [
        Trial(f"s-1-{n:04d}", "s-1", n, params=(("lr", n / 10),), created_at=0.0,
              state=TrialState.FAILED, finished_at=float(n),
              failure=Failure("exception", "ValueError: no", TRACEBACK.format(1, 1, 1)))
        for n in range(VARIED)
    ]  # fmt: skip
    local = study(evidence=True)
    assert not failing_alike(local, trials[:-1])
    assert failing_alike(local, trials)
