"""The story of a trial whose epochs were trained by others."""

from __future__ import annotations

import io

import pytest
from ledgers.shared_ledger import shared_study
from penstock.app.show.stories.story import find_trial, render, trial_story
from rich.console import Console


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return shared_study(tmp_path_factory.mktemp("home"))[0]


def story_of(reader, number):
    return trial_story(reader, *find_trial(reader, f"digits/{number}"))


def shown(story):
    console = Console(file=io.StringIO(), width=120)
    console.print(render(story))
    return [line.strip() for line in console.file.getvalue().splitlines()]


def test_epochs_that_were_taken_over_are_told_before_those_that_it_trained(reader):
    story = story_of(reader, 1)
    first, *others = story.lines
    assert first.what == "epochs 1 to 3: taken over from trial 0, which trained them (0.30 s saved)"
    why = "it waited as a companion of trial 0: both have the same hyperparameters up to epoch 3"
    assert first.cause == why
    assert (first.seq, first.attempt) == (None, None)
    assert [line.what.split()[1] for line in others] == ["4", "5", "6"]
    after = [line.after for line in story.lines]
    assert after == sorted(after)
    lines = shown(story)
    assert lines.index(why) + 1 == next(n for n, line in enumerate(lines) if first.what in line)
    assert "taken over" not in "".join(shown(story_of(reader, 0))), "it trained them"


def test_a_trial_that_took_all_over_has_no_attempt_and_a_story_all_the_same(tmp_path):
    reader, _ = shared_study(
        tmp_path, n_trials=3, space=("x",), values=(0.5, 0.2), sampler="random"
    )
    story = story_of(reader, 1)
    [line] = story.lines
    assert line.what == "epochs 1 to 6: taken over from trial 0, which trained them (0.60 s saved)"
    assert line.cause == "it waited as a companion of trial 0: both have the same hyperparameters"
    lines = shown(story)
    assert not any("attempt" in line or "nothing has happened" in line for line in lines)
    assert "after epoch 6: accuracy 0.1714" in lines


def test_what_was_trained_before_the_trial_came_is_told_so(tmp_path):
    reader, study = shared_study(
        tmp_path, n_trials=6, space=("x",), values=(0.5, 0.2), sampler="tpe"
    )
    told = [
        line
        for trial in reader.trials(study.id)
        for line in story_of(reader, trial.number).lines
        if "had trained that before" in line.cause
    ]
    [line, *_] = told
    source = line.what.split()[8].rstrip(",")
    assert line.what.startswith(f"epochs 1 to 5: taken over from trial {source}, which trained")
    same = "both have the same hyperparameters"
    assert line.cause == f"trial {source} had trained that before: {same}"


def test_a_trial_that_waits_as_a_companion_says_for_whom(tmp_path):
    reader, study = shared_study(tmp_path, turns=2)
    assert reader.trials(study.id)[1].state == "waiting"
    words = "it waits for trial 0, which trains epochs that both have in common (up to epoch 3)"
    assert story_of(reader, 1).origins == (words,)
    assert words in shown(story_of(reader, 1))
    assert story_of(reader, 0).origins == ()
