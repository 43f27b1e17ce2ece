"""A trial whose code misbehaves ends as the policy says, and the study goes on."""

from __future__ import annotations

import os
import signal

import pytest
from penstock import Float, FullBudget, Limits, Resources, TrialFailed, create_study
from penstock.scheduler.model.retry import CRASH_LIMIT
from servers.installation import variables_of
from user_code import users_objectives, users_trainables

pytestmark = pytest.mark.integration

#: Failures by the code's mischief: the failure's kind, and words of its message.
WRONG = {
    "raises": ("exception", "ValueError: the dog ate the batch"),
    "nan": ("nan", "accuracy is nan after epoch 1"),
    "other metric": ("metric", "no metric 'accuracy'; those there are: f1"),
    "exits": ("exit", "sys.exit(3)"),
    "loops": ("timeout", "epoch 1 took longer than 10 s"),
    "too big": ("memory", "MemoryError"),
    "no data": ("data", "no-such-folder"),
}


FINE = ("fine 1", "fine 2", "fine 3")
OBJECTIVE_WRONG = {
    "raises": ("exception", "ValueError: the cat sat on the keyboard"),
    "nan": ("nan", "reported at step 1 is nan"),
    "segfaults": ("died", "SIGSEGV"),
}


@pytest.fixture(scope="module")
def wrong(running):
    """Return ``status --json`` of a study in which most trials are wrong, each in its way."""
    with variables_of(running):
        study = create_study(
            study_name="wrong",
            direction="maximize",
            metric="accuracy",
            sampler="grid",
            strategy=FullBudget(2),
            limits=Limits(epoch_timeout=10),  # the good ones take a hundredth,
        )
        study.optimize(users_trainables.Mischief, {"how": [*WRONG, *FINE]}, show_progress=False)
    return running.facts("wrong")


def by_way(facts):
    return {trial["params"]["how"]: trial for trial in facts["all_trials"]}


def test_a_study_with_failing_trials_is_complete_and_its_good_ones_are_whole(wrong):
    assert wrong["status"] == "complete"
    assert wrong["best"]["params"]["how"] in FINE
    trials = [by_way(wrong)[how] for how in FINE]
    assert [(trial["state"], trial["epoch"]) for trial in trials] == [("completed", 2)] * 3
    assert wrong["trials"] == {"completed": 3, "failed": len(WRONG)}


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_trial_fails_for_its_own_reason(wrong, how):
    kind, words = WRONG[how]
    trial = by_way(wrong)[how]
    assert trial["state"] == "failed"
    assert trial["failure"]["kind"] == kind
    assert words in trial["failure"]["message"]


def test_status_and_story_show_where_in_the_users_code_it_was(site, wrong):
    trial = by_way(wrong)["raises"]["id"]
    for said in (site.penstock("status", "wrong"), site.penstock("story", trial)):
        assert "Traceback" in said
        assert "users_trainables.py" in said
        assert 'raise ValueError("the dog ate the batch")' in said
        assert "penstock/tasks" not in said


def test_every_slot_is_free_again(site, wrong):
    study = create_study(study_name="after the wrong")
    study.optimize(users_objectives.quick, n_trials=2, show_progress=False)
    rows = site.reader.epochs(study.id)
    assert len(rows) == 2 * 3
    assert len({(row.device, row.slot) for row in rows}) == 2


def test_a_failure_is_retried_as_often_as_the_study_says_and_goes_on_where_it_was(site, tmp_path):
    study = create_study(
        study_name="unlucky",
        metric="loss",
        sampler="grid",
        strategy=FullBudget(3),
        limits=Limits(retries=1),
    )
    space = {"marker": [str(tmp_path / "been here")]}
    study.optimize(users_trainables.OnceUnlucky, space, show_progress=False)
    (trial,) = study.trials
    assert trial.state.name == "COMPLETE"
    assert sorted(trial.intermediate_values) == [1, 2, 3]
    story = site.penstock("story", trial.user_attrs["trial_id"])
    assert "the disk was away for a moment" in story


def test_an_objective_goes_wrong_in_the_same_ways(site):
    study = create_study(study_name="mischief", sampler="grid")
    study.optimize(users_objectives.mischief, {"how": users_objectives.WAYS}, show_progress=False)
    trials = by_way(site.facts("mischief"))
    assert (trials["fine"]["state"], trials["fine"]["value"]) == ("completed", 0.75)
    for how, (kind, words) in OBJECTIVE_WRONG.items():
        failure = trials[how]["failure"]
        assert (how, failure["kind"]) == (how, kind)
        assert words in failure["message"]
    story = site.penstock("story", trials["segfaults"]["id"])
    assert story.count("the trainer process died") == CRASH_LIMIT, "it was tried again"


def test_an_objective_that_crashes_at_once_is_repeated_and_fails_with_what_it_drew(site, tmp_path):
    file = tmp_path / "drawn"

    def objective(trial):
        x = trial.suggest_int("x", 0, 10**6)
        with file.open("a") as drawn:
            print(trial.number, x, file=drawn)
        if trial.number == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return x

    study = create_study(study_name="crashes")
    study.optimize(objective, n_trials=3, show_progress=False)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    x = study.trials[1].params["x"]
    attempts = [line for line in file.read_text().splitlines() if line.startswith("1 ")]
    assert attempts == [f"1 {x}"] * CRASH_LIMIT


def test_an_objective_that_takes_more_than_its_study_allows_fails_for_memory(site):
    study = create_study(study_name="hungry", resources=Resources(memory=2**30))
    with pytest.raises(TrialFailed, match="its memory limit is 1 GiB") as failed:
        study.optimize(users_objectives.hungry, n_trials=1, show_progress=False)
    assert failed.value.kind == "memory"


def test_a_range_that_the_sampler_cannot_draw_from_fails_the_trial_that_asked(site):
    study = create_study(study_name="boundless", sampler="random")
    with pytest.raises(TrialFailed, match="Range exceeds valid bounds"):
        study.optimize(users_objectives.boundless, n_trials=1, show_progress=False)


def test_a_bug_that_meets_every_trial_ends_the_study_after_the_first_ones(site):
    study = create_study(study_name="forgetful", sampler="random")
    with pytest.raises(TrialFailed, match="KeyError: 'loss of"):
        study.optimize(users_objectives.forgetful, n_trials=500, show_progress=False)
    facts = site.facts("forgetful")
    assert facts["status"] == "failed"
    assert facts["trials"]["failed"] < 50, "those that ran beside the first ones, at most"
    assert "trials failed alike, as all would: KeyError: 'loss of" in facts["message"]
    line = users_objectives.forgetful.__code__.co_firstlineno + 3
    assert f"(at {users_objectives.__file__}:{line})" in facts["message"]


def test_a_study_whose_trials_fail_alike_in_a_part_of_its_space_pauses_and_nobody_waits(site):
    study = create_study(study_name="divided", sampler="random")
    for n in range(30):
        study.enqueue_trial({"heads": 5, "lr": n % 10 / 10})
    words = "divided has paused: the first 12 trials failed alike, and all have heads = 5"
    with pytest.raises(TrialFailed, match=words) as failed:
        space = {"heads": [4, 5], "lr": Float(0.0, 1.0)}
        study.optimize(users_objectives.divided, space, n_trials=60, show_progress=False)
    assert "heads must divide 64" in failed.value.traceback
    assert study.status == "paused"
    said = site.penstock("watch", "divided", status=1)
    assert words in said and "`penstock resume divided`" in said
    site.penstock("extend", "divided", "--by", "1")
    study.wait()
    assert study.status == "paused", "the others that are enqueued fail, too"
    study.cancel()


def test_when_no_trial_succeeds_the_failure_is_raised_with_its_traceback(site):
    study = create_study(study_name="hopeless", sampler="grid")
    with pytest.raises(TrialFailed, match="cat sat on the keyboard") as failed:
        study.optimize(users_objectives.mischief, {"how": ["raises"]}, show_progress=False)
    assert failed.value.kind == "exception"
    assert "in mischief" in failed.value.traceback
    assert study.status == "failed"
    assert "hopeless" in site.penstock("watch", "hopeless", status=1)


def test_a_run_in_which_some_trials_fail_says_which_and_where_and_what_they_printed(site, tmp_path):
    """It ends well, as there is a best trial."""
    script = tmp_path / "partly.py"
    script.write_text(
        "import penstock\n\n"
        "def objective(trial):\n"
        "    print('trial', trial.number, 'has begun')\n"
        "    if trial.number == 1:\n"
        "        raise ValueError('one is wrong')\n"
        "    return 1.0\n\n"
        "if __name__ == '__main__':\n"
        "    study = penstock.create_study(study_name='partly')\n"
        "    study.optimize(objective, n_trials=3)\n"
    )
    said = site.penstock("run", script)
    assert (
        "1 of 3 trials failed\n"
        "  trial 1 failed (exception): ValueError: one is wrong  penstock story partly/1\n"
        "the end of trial 1's traceback; to see all of it: penstock story partly/1\n"
        f'  File "{script}", line 6, in objective\n'
        "    raise ValueError('one is wrong')\n"
        "ValueError: one is wrong\n"
    ) in said
    assert site.penstock("logs", "partly/1").endswith("trial 1 has begun\n")
    lines = site.penstock("logs", "partly").splitlines()
    assert sorted(each for each in lines if "begun" in each) == [
        f"{n}| trial {n} has begun" for n in range(3)
    ]
