"""The story of a trial: its events in order, each with the reason, in sentences."""

import io
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from ledgers.study_ledger import TRACEBACK, make_study, study_spec
from penstock.app.extensions import of_ends
from penstock.app.show.stories import sentences
from penstock.app.show.stories.story import (
    cause_words,
    find_trial,
    length_words,
    render,
    sentence,
    standing,
    trial_story,
)
from penstock.base.errors import UsageError
from penstock.profiling.costs.segment_costs import SegmentStart
from penstock.scheduler.model import events
from penstock.scheduler.model.segment_length import LengthReason, SegmentLength
from penstock.scheduler.model.study import StrategySpec, SuperNet
from penstock.scheduler.model.writing import Suggestion, Writing
from rich.console import Console

DREW = "the objective drew x = 0.25, n = 3, reported 0.5 at step 1"
FENCED = {"at": 1.0, "trial": "s-0001", "fence": 5}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("home"), study_spec(n_trials=9), fails=(3,))


def story_of(reader, name):
    return trial_story(reader, *find_trial(reader, name))


def test_a_story_has_every_epoch_of_the_trial_in_order_with_its_reason(reader):
    best = next(t for t in reader.trials("digits-1a2b") if t.state == "completed")
    lines = story_of(reader, best.id).lines
    epochs = [line.what.split()[1] for line in lines if line.what.startswith("epoch ")]
    assert epochs == [str(epoch) for epoch in range(1, 10)]
    assert [line.seq for line in lines] == sorted(line.seq for line in lines)
    assert lines[0].cause.startswith("sent when the sampler proposed it (#")
    # Promoted later, when some trial's epoch left a slot free.
    assert " ended epoch " in lines[1].cause
    assert all(0 <= a.after <= b.after for a, b in pairwise(lines))


def test_a_trial_that_went_no_further_says_how_it_stands_among_those_that_came_as_far(reader):
    trials = reader.trials("digits-1a2b")
    first = {row.trial: row.value for row in reader.epochs("digits-1a2b") if row.epoch == 1}
    stopped = [each for each in trials if each.state == "stopped" and each.epoch == 1]
    assert stopped
    for trial in stopped:
        better = sum(value > trial.value for value in first.values())
        assert story_of(reader, trial.id).origins[-1] == (
            "it was paused, and stopped at the end of its study, which did not promote it: its"
            f" accuracy of {trial.value:.4g} is number {better + 1} of {len(first)} after 1 epoch"
        )
    best = next(each for each in trials if each.state == "completed")
    assert "is number" not in " ".join(story_of(reader, best.id).origins)


def test_one_that_was_stopped_in_the_middle_of_a_rung_is_not_said_to_have_been_paused(reader):
    study, spec = reader.study("digits"), study_spec(n_trials=9)
    epochs = reader.epochs("digits-1a2b")
    trial = next(each for each in reader.trials("digits-1a2b") if each.state == "stopped")
    [paused] = standing(study, spec, trial, epochs)
    [stopped] = standing(study, spec, replace(trial, target=trial.target + 1), epochs)
    assert paused.startswith("it was paused, and stopped at the end of its study")
    assert stopped.startswith("it was stopped: its accuracy")
    assert standing(study, spec, replace(trial, state="cancelled"), epochs) == []


def test_an_epoch_says_where_it_ran_how_long_it_took_and_what_it_gave(reader):
    story = story_of(reader, "digits/1")
    [line] = story.lines
    value = reader.trials("digits-1a2b")[1].value
    where = reader.epochs("digits-1a2b")[1].device
    assert line.what == f"epoch 1 ended on {where} after 0.10 s: accuracy {value:.4g}"
    assert (line.attempt, line.fence) == (1, 2), "its first attempt, the study's second"
    assert story.metrics == reader.epochs("digits-1a2b")[1].metrics


def shown(story, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(render(story), soft_wrap=True)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_failure_is_told_with_its_traceback_in_whole_lines(reader):
    story = story_of(reader, "digits/3")
    [line] = story.lines
    assert "failed, the training code raised: ValueError: <b>no</b>" in line.what
    assert line.traceback == TRACEBACK
    lines = shown(story, width=30)
    assert lines[0] == "trial 3 of digits  failed"
    assert lines[-3:] == TRACEBACK.splitlines()


def test_the_same_traceback_of_several_attempts_is_told_once(reader):
    story = story_of(reader, "digits/3")
    [line] = story.lines
    again = replace(line, seq=99, attempt=77)
    lines = shown(replace(story, lines=(line, again)))
    assert f"the traceback of #{line.seq}, #99" in lines
    assert lines.count(TRACEBACK.splitlines()[-1]) == 1


def test_an_event_takes_one_line_of_80_columns_and_each_attempt_says_why_once(reader):
    best = next(t for t in reader.trials("digits-1a2b") if t.state == "completed")
    story = story_of(reader, best.id)
    lines = [line.strip() for line in shown(story)]
    attempts = dict.fromkeys(line.attempt for line in story.lines)
    heads = [line for line in lines if line.startswith("attempt ")]
    assert [int(head.split()[1].rstrip(",")) for head in heads] == list(attempts)
    assert list(attempts) == list(range(1, len(attempts) + 1))
    assert all(f" (fence {line.fence}), sent " in heads[line.attempt - 1] for line in story.lines)
    assert len(attempts) < len(story.lines)
    assert sum(line.startswith("+") for line in lines) == len(story.lines)
    lengths = [line for line in lines if re.match(r"\d+ epochs?: ", line)]
    assert len(lengths) == len(heads)
    assert len(lines) == 4 + len(heads) + len(lengths) + len(story.lines)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (
            SegmentLength(
                5, LengthReason.BALANCE, 0.2, 0.012, 0.003, SegmentStart.TRAINER, interval=4.2
            ),
            (
                "5 epochs: overhead 12 ms, resume 3 ms in the trainer, a preemption expected every"
                " 4.2 s"
            ),
        ),
        (
            SegmentLength(
                9, LengthReason.DELAY, 0.2, 0.02, 1.5, SegmentStart.STORE, interval=372.0
            ),
            (
                "9 epochs: overhead 20 ms, resume 1.5 s from the store, a preemption expected every"
                " 6 min 12 s; no trial should wait for more than 2 s"
            ),
        ),
        (SegmentLength(1, LengthReason.EPOCH, 60.0), "1 epoch: it takes 1 min 00 s"),
        (SegmentLength(3, LengthReason.TARGET, 0.1), "3 epochs: up to its target"),
        (SegmentLength(1, LengthReason.LIMIT, 0.1), "1 epoch: its study is close to a limit"),
    ],
)
def test_the_length_of_a_segment_is_told_with_what_decided_it(length, words):
    assert length_words(length) == words


def test_each_reason_for_a_length_has_words_of_its_own():
    told = {length_words(SegmentLength(4, reason)) for reason in LengthReason}
    assert len(told) == len(LengthReason)


@pytest.mark.extension("nas")
def test_a_candidate_names_its_super_net_and_the_super_net_counts_its_candidates(tmp_path):
    trained = study_spec("super", 1, id="super-1", strategy=StrategySpec("full", max_epochs=3))
    reader = make_study(tmp_path, trained)
    told = story_of(reader, "super/0")
    assert not told.origins
    last = reader.epochs("super-1")[-1]
    of = SuperNet("trial 0 of super after epoch 3", "file:///s", last.state_hash, 20)
    evaluated = StrategySpec("full", max_epochs=1, supernet=of)
    one, more = (
        study_spec(name, n, id=f"{name}-1", strategy=evaluated) for name, n in (("a", 1), ("b", 4))
    )
    make_study(tmp_path, one)
    assert story_of(reader, "super/0").origins == (
        "it is a super-net: 1 candidate was evaluated with its weights after epoch 3, in study a",
    )
    make_study(tmp_path, more, fails=(2,))
    assert story_of(reader, "super/0").origins[1] == (
        "it is a super-net: 3 candidates were evaluated with its weights after epoch 3, in study b"
    )
    its = "with the weights of trial 0 of super after epoch 3, and running statistics"
    of_candidate = "it is a candidate of a super-net and is not trained: it"
    [line] = story_of(reader, "b/0").origins
    assert line == f"{of_candidate} was evaluated {its} that are measured again over 20 batches"
    [line] = story_of(reader, "b/2").origins
    assert line.startswith(f"{of_candidate} is to be evaluated {its}")


def test_an_event_of_no_attempt_belongs_to_none(reader):
    study, trial = find_trial(reader, "digits/1")

    class Added:
        """The ledger, with a trial that its user added and trained."""

        def __getattr__(self, name):
            return getattr(reader, name)

        def events(self, trial_id):
            added = events.TrialAdded(at=trial.created_at, trial=trial.id, state="running")
            told = events.TrialWritten(at=trial.created_at, trial=trial.id, state="pruned")
            return [(1, added), (2, told)] if trial_id == trial.id else []

    story = trial_story(Added(), study, trial)
    assert [(line.attempt, line.fence) for line in story.lines] == [(None, None)] * 2
    assert not any("attempt" in line for line in shown(story))


def test_each_kind_of_event_of_a_trial_has_words_of_its_own():
    """None is told by the name of its class."""
    text = Path(sentences.__file__).read_text()
    told = {kind for of in of_ends("show", "SENTENCES") for kind in of}
    for kind in vars(events).values():
        of_trial = isinstance(kind, type) and "trial" in getattr(kind, "__dataclass_fields__", ())
        if of_trial and kind not in told:
            assert f"happened.{kind.__name__}(" in text, kind


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            events.Durable(at=1.0, trial="s-0001", epoch=4, state_hash="a", uri="file:///x"),
            "the state after epoch 4 is in the store",
        ),
        (
            events.Replayed(**FENCED, first=2, last=4, reason="checkpoint x is corrupt"),
            "epochs 2 to 4 are computed again by attempt 2: checkpoint x is corrupt",
        ),
        (
            events.Remarked(**FENCED, text="in venv:/v, which has Penstock 1"),
            "attempt 2 runs in venv:/v, which has Penstock 1",
        ),
        (
            events.Remarked(**FENCED, text="its folder is not there"),
            "attempt 2 runs, but its folder is not there",
        ),
        (events.Replayed(**FENCED, first=2, last=2), "epoch 2 is computed again by attempt 2"),
        (
            events.Suggested(at=1.0, trial="s-0001", name="lr", value=0.25, distribution=""),
            "the sampler drew lr = 0.25",
        ),
        (events.TrialReturned(**FENCED, value=0.5), "the objective returned 0.5"),
        (events.TrialReturned(**FENCED, value=0.5, pruned=True), "the objective pruned it"),
        (events.TrialReturned(**FENCED, value=None), "the objective returned without a value"),
        (
            events.TrialReturned(
                **FENCED, value=None, pruned=True, constraints=(("size", 5.0), ("ms", -1.0))
            ),
            "it violates a constraint, so it was not trained: size is 25, allowed is at most 20",
        ),
        *[
            (events.TrialAdded(at=1.0, trial="s-0001", state=state, values=values), words)
            for state, values, words in (
                ("running", (), "its user asked for it"),
                ("waiting", (), "its user enqueued it"),
                ("complete", (0.5, 2.0), "its user added it with its result: 0.5, 2"),
                ("pruned", (), "its user added it as pruned"),
                ("fail", (), "its user added it as failed"),
            )
        ],
        *[
            (events.TrialWritten(at=1.0, trial="s-0001", state=state, **more), words)
            for state, more, words in (
                ("", {}, "its user wrote nothing"),
                ("running", {}, "its user took it"),
                ("complete", {"values": (0.5, 2.0)}, "its user reported the result 0.5, 2"),
                ("pruned", {}, "its user pruned it"),
                ("fail", {"reason": ""}, "its user reported that it failed"),
            )
        ],
        (
            events.TrialWritten(
                **FENCED,
                writing=Writing(
                    suggestions=(Suggestion("x", 0.25, "", 0.25), Suggestion("n", 3, "", 3.0)),
                    steps=((1, 0.5),),
                    user_attrs=(("std", "1"),),
                    system_attrs=(("a:b", "1"), ("c:d", "2")),
                ),
            ),
            f"{DREW}, set attribute std, set Optuna's internal attributes a:b, c:d",
        ),
        (events.AttemptLost(**FENCED, reason="its lease ran out"), "attempt 2 was lost: its lease"),
        (
            events.AttemptLost(**FENCED, reason="other code", refused=True),
            "attempt 2 was refused by its node: other code",
        ),
        (
            events.EpochReported(
                **FENCED,
                epoch=2,
                metrics=(),
                state_hash="",
                signature="",
                seconds=1.0,
                closes=False,
            ),
            "epoch 2 was reported by attempt 2 and did not count",
        ),
    ],
)
def test_each_kind_of_event_has_its_sentence(event, words):
    said = sentence(event, "v", {}, {5: 2}, bounds=(("size", 20.0), ("ms", 4.0)))
    assert said.startswith(words)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (events.DeviceLeft(at=1.0, device="cpu.a.0", reason="gone"), "sent when cpu.a.0 left (#7)"),
        (
            events.AttemptLost(at=1.0, trial="s-0001", fence=4, reason=""),
            "sent when an attempt of it failed (#7)",
        ),
        (
            events.TrialReturned(at=1.0, trial="s-0012", fence=4, value=None),
            "sent when trial 12 returned (#7)",
        ),
        (
            events.TrialReturned(at=1.0, trial="other-1a2b-0003", fence=4, value=None),
            "sent when trial 3 of another study, other, returned (#7)",
        ),
        (
            events.DevicesTakenOut(at=0.0, devices=("cpu.a.0", "cpu.a.1")),
            "sent when the operator took out cpu.a.0, cpu.a.1 (#7)",
        ),
        (
            events.DevicesGivenBack(at=0.0, devices=("cpu.a.0",)),
            "sent when the operator gave back cpu.a.0 (#7)",
        ),
    ],
)
def test_a_cause_becomes_the_occasion_of_the_decision(reason, words):
    event = events.AttemptLost(**FENCED, cause="7.0", reason="")
    assert cause_words(event, "s-0001", {7: reason}, {"other-1a2b": "other"}) == words
    assert cause_words(event, "s-0001", {}, {}) == "sent at #7"


def test_an_event_from_outside_has_no_cause():
    assert cause_words(events.AttemptLost(**FENCED, reason="x"), "s-0001", {}, {}) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digits/77", "there is no trial 'digits/77'; its trials are digits/0 to digits/8"),
        ("digits-1a2b-0077", "there is no trial 'digits-1a2b-0077'; its trials are digits/0 to"),
        ("digits", "digits is a whole study; its trials are digits/0 to digits/8"),
        ("nothing/1", "there is no study 'nothing'; there is: digits"),
        ("/3", "there is no study ''; there is: digits"),
        ("gpt", "there is no study 'gpt'; there is: digits"),
        ("my-gpt", "there is no study 'my-gpt'; there is: digits"),
        ("digits/x", "there is no trial 'digits/x'; its trials are digits/0 to digits/8"),
    ],
)
def test_a_trial_that_is_not_there_is_refused_with_those_that_are(reader, name, words):
    with pytest.raises(UsageError) as refusal:
        find_trial(reader, name)
    assert str(refusal.value).startswith(words)


def test_a_study_without_trials_says_so(tmp_path):
    empty = make_study(tmp_path, study_spec(), turns=0)
    with pytest.raises(UsageError, match="digits has no trial yet"):
        find_trial(empty, "digits/0")


def test_an_epoch_computed_otherwise_than_the_one_before_says_so(reader):
    trial = next(t for t in reader.trials("digits-1a2b") if t.state == "completed")
    accepted = {
        (row.epoch, row.fence): row for row in reader.epochs("digits-1a2b") if row.trial == trial.id
    }
    event = next(
        event
        for _, event in reader.events(trial.id)
        if isinstance(event, events.EpochReported) and event.epoch == 4
    )
    assert "computed by" not in sentence(event, "accuracy", accepted, {})
    said = sentence(replace(event, signature="S2;elsewhere"), "accuracy", accepted, {})
    assert said.endswith("; computed by S2;elsewhere, epoch 3 by simulated")
    late = replace(event, signature="S2;elsewhere", fence=999)
    said = sentence(late, "accuracy", accepted, {999: 9})
    assert "by attempt 9 and did not count; computed by S2;elsewhere" in said


def test_an_epoch_says_for_how_long_its_trial_stood_and_at_which_widths_it_went_on(reader):
    trial = next(t for t in reader.trials("digits-1a2b") if t.state == "completed")
    rows = {row.epoch: row for row in reader.epochs("digits-1a2b") if row.trial == trial.id}
    event = next(
        event
        for _, event in reader.events(trial.id)
        if isinstance(event, events.EpochReported) and event.epoch == 4
    )

    def said(several=(), **changes):
        last, this = rows[3], replace(rows[4], **changes)
        known = {(3, last.fence): last, (4, this.fence): this}
        return sentence(event, "accuracy", known, {}, several)

    device = rows[4].device
    assert f" on {device} after " in said()
    assert f" on {device}/0 after " in said((device,)), "as in `penstock plan`"
    assert f" on {device}/5 after " in said(slot=5)

    begun = rows[3].at + rows[4].seconds
    assert "stood" not in said(at=begun + 0.9)
    assert said(at=begun + 90.0).endswith("; it had waited 1 min 30 s before")
    assert "in the epoch before" not in said()
    two = ((rows[4].device, 0), ("cpu.b.0", 0))
    assert f" on {rows[4].device}, cpu.b.0 (2 devices, 1 in the epoch before) after " in said(
        members=two
    )


def test_another_policys_failure_before_the_study_is_no_part_of_its_story(reader):
    study, trial = find_trial(reader, "digits/1")

    class Before:
        """The ledger, with two failures of a policy's."""

        def __getattr__(self, name):
            return getattr(reader, name)

        def policy_failures(self):
            times = (study.created_at - 1.0, trial.created_at)
            return [
                (n, events.PolicyFailed(at=at, policy="m:f", reason="x"))
                for n, at in enumerate(times)
            ]

    told = [
        line
        for line in trial_story(Before(), study, trial).lines
        if line.what.startswith("policy m:f")
    ]
    assert [line.seq for line in told] == [1]
