"""Objectives whose sampler and pruner run with them, in the real trainer process."""

from __future__ import annotations

import json
from contextlib import contextmanager

import optuna
import pytest
from optuna.distributions import FloatDistribution
from penstock.base.draws import digest_of
from penstock.tasks.contracts.code import refer_to_value
from penstock.tasks.objectives.distributions import from_text, to_text
from penstock.wire.messages import CodeRef
from trainers.trainer_process import TrainerProcess, segment
from user_code import local_objectives

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Scheduler:
    """Answers a trainer as the scheduler does, from what the trainer itself has said."""

    def __init__(self, folder, sampler, pruner=None):
        self.folder = folder
        self.trainer = TrainerProcess(folder / "log", answers_history=False)
        (folder / "code").mkdir()
        self.give(sampler, pruner)
        self.updates = []
        self.requests = []
        self.asked_after = []
        self.fence = 0

    def give(self, sampler, pruner=None):
        """The trials that follow have this sampler and pruner."""
        tools = (sampler, pruner or optuna.pruners.NopPruner())
        found = refer_to_value(tools, "tools", str(self.folder))
        (self.folder / "code" / found.digest).write_bytes(found.content)
        self.tools = CodeRef(target=found.target, path=found.path, digest=found.digest)

    def __enter__(self):
        self.trainer.__enter__()
        return self

    def __exit__(self, *raised):
        self.trainer.__exit__(*raised)

    def update(self, number, **fields):
        self.updates.append({"n": number, **fields})

    def run(self, code, number, **changes):
        """Run a trial to its end. Gives all that is said but questions."""
        self.fence += 1
        task = segment(
            code,
            **{"n": 50, "trial": f"s-{number:04}", "fence": self.fence, "tools": self.tools}
            | {"define_by_run": True, "study_name": "mine", "store": f"file://{self.folder}"}
            | changes,
        )
        self.update(number, state="running", values=[], started=1.0, ended=None)
        self.trainer.run(task)
        said = []
        while not said or said[-1]["op"] not in ("returned", "failed", "stopped"):
            said += self._answered(self.trainer.hear(), number)
        self._end(number, said[-1])
        return said

    def _answered(self, message, number):
        match message["op"]:
            case "history":
                self.asked_after.append(message["after"])
                new = self.updates[int(message["after"] or 0) :]
                answer = [str(len(self.updates)), [json.dumps(new)]]
            case "request":
                self.requests.append(message)
                answer = {"ok": True, "number": number + len(self.requests)}
            case "written":
                self._accept(message["writing"], number)
                return [message]
            case _:
                return [message]
        self.trainer.say(op="answer", value=answer)
        return []

    def _accept(self, writing, number):
        given = {name: pairs for name, pairs in writing.items() if name != "suggestions"}
        drawn = [(name, text, i) for name, _, text, i in writing.get("suggestions", ())]
        self.update(number, **given, suggestions=drawn)

    def _end(self, number, last):
        state = "fail" if last["op"] != "returned" else "pruned" if last["pruned"] else "complete"
        value = last.get("value")
        values = [] if value is None or state == "fail" else [value]
        self.update(number, state=state, values=values, started=1.0, ended=2.0)


@pytest.fixture
def scheduler(tmp_path):
    def of(sampler=None, pruner=None):
        return Scheduler(tmp_path, sampler or optuna.samplers.RandomSampler(seed=1), pruner)

    return of


def drawn(said):
    """The parameters that were said, as plain numbers and texts."""
    every = [each for m in said for each in m.get("writing", {}).get("suggestions", ())]
    return {name: value for name, value, *_ in every}


SAMPLERS = {
    "tpe": lambda: optuna.samplers.TPESampler(seed=3, n_startup_trials=4),
    "group": lambda: optuna.samplers.TPESampler(
        seed=3, n_startup_trials=4, multivariate=True, group=True
    ),
    "nsga": lambda: optuna.samplers.NSGAIISampler(seed=3, population_size=4),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_seeded_sampler_draws_what_it_draws_in_plain_optuna(scheduler, kind):
    plain = optuna.create_study(sampler=SAMPLERS[kind]())
    plain.optimize(local_objectives.sphere, n_trials=12)
    with scheduler(SAMPLERS[kind]()) as ours:
        said = [ours.run(local_objectives.sphere, number) for number in range(12)]
        assert [drawn(each) for each in said] == [trial.params for trial in plain.trials]
        assert [each[-1]["value"] for each in said] == [trial.value for trial in plain.trials]
        # Each question goes on where the last one ended. NSGA-II keeps its populations.
        assert ours.asked_after == ["", *sorted(ours.asked_after[1:], key=int)]
        assert {each["command"] for each in ours.requests} <= {"annotate"}
        assert kind == "nsga" or not ours.requests, "it costs no round trip"


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_sampler_that_the_user_changes_counts_from_the_next_trial_on(scheduler):
    fixed = optuna.samplers.PartialFixedSampler({"x": 4.0}, optuna.samplers.RandomSampler(seed=1))
    with scheduler() as ours:
        assert drawn(ours.run(local_objectives.sphere, 0))["x"] != 4.0
        ours.give(fixed)
        assert drawn(ours.run(local_objectives.sphere, 1))["x"] == 4.0


def test_a_trial_that_starts_over_has_what_was_accepted_of_it_and_draws_the_rest(scheduler):
    text = to_text(FloatDistribution(-5, 5))
    with scheduler() as ours:
        ours.update(0, suggestions=[("x", text, 1.25)], user_attrs=[("from", '"before"')])
        assert "x" not in drawn(first := ours.run(local_objectives.sphere, 0)), (
            "the scheduler knows it"
        )
        assert drawn(first).keys() >= {"n", "kind"}
        # What this process drew and nobody accepted is not there any more.
        del ours.updates[1:]
        ours.updates += [{"n": 0, "user_attrs": []}] * 9
        again = ours.run(local_objectives.sphere, 0)
        assert drawn(again).keys() >= {"n", "kind"}
    assert from_text(text) == FloatDistribution(-5, 5)


def values_of(said):
    return [m["metrics"]["accuracy"] for m in said if m["op"] == "epoch"]


def draws_of(said):
    """Return the drawn values, as the task of the next attempt has them."""
    written = (m.get("writing", {}) for m in said)
    return tuple(tuple(each) for w in written for each in w.get("suggestions", ()))


def digest(*draws):
    return digest_of((name, text, internal) for name, _, text, internal in draws)


@contextmanager
def another_trainer(ours):
    """A trainer that has seen nothing, and that finds no history either."""
    ours.updates.clear()
    before = ours.trainer
    with TrainerProcess(ours.folder / "log", answers_history=False) as ours.trainer:
        yield
    ours.trainer = before


def test_an_attempt_that_finds_no_history_draws_nothing_that_was_accepted_and_goes_on(scheduler):
    with scheduler() as ours:
        first = ours.run(local_objectives.draws_in_the_middle, 0)
        x, y = draws_of(first)
        with another_trainer(ours):
            again = ours.run(local_objectives.draws_in_the_middle, 0, first=3, suggestions=(x,))
            assert [name for name, *_ in draws_of(again)] == ["y"]
            assert values_of(again)[0] == x[1]
            (y,) = draws_of(again)
        with another_trainer(ours):
            last = ours.run(local_objectives.draws_in_the_middle, 0, first=6, suggestions=(x, y))
            assert draws_of(last) == ()
            assert values_of(last) == [x[1] + y[1]] == [last[-1]["value"]]


def test_whatever_is_said_carries_the_digest_of_all_that_was_drawn(scheduler):
    with scheduler() as ours:
        said = ours.run(local_objectives.draws_in_the_middle, 0)
        x, y = draws_of(said)
        assert [(m["op"], m["draws_digest"]) for m in said] == [
            *[*[("written", digest(x))] * 2, *[("epoch", digest(x))] * 3],
            *[("written", digest(x, y)), *[("epoch", digest(x, y))] * 3],
            ("returned", digest(x, y)),
        ]
        assert said[-1]["reported"] == 6


def paused(ours, **changes):
    """Run four epochs of a trial, which then waits in its report. Gives what it drew."""
    ours.fence += 1
    task = {"n": 4, "trial": "s-0000", "fence": ours.fence, "tools": ours.tools}
    task |= {"define_by_run": True, "study_name": "mine", "store": f"file://{ours.folder}"}
    ours.trainer.run(segment(local_objectives.draws_in_the_middle, **task | changes))
    said = []
    while not said or not said[-1].get("closes"):
        said += ours._answered(ours.trainer.hear(), 0)
    return draws_of(said)


def test_a_paused_objective_says_what_was_not_accepted_of_its_draws_before_it_reports(scheduler):
    with scheduler() as ours:
        x, y = paused(ours)
        said = ours.run(local_objectives.draws_in_the_middle, 0, first=2, suggestions=(x,))
        assert draws_of(said[:1]) == (y,)
        assert {m["draws_digest"] for m in said} == {digest(x, y)}
        assert values_of(said) == [x[1]] * 2 + [x[1] + y[1]] * 3


def test_a_paused_objective_whose_report_was_lost_says_its_attributes_again(scheduler):
    with scheduler() as ours:
        x, y = paused(ours)
        note = {"user_attrs": [["x", json.dumps(x[1])]]}
        said = ours.run(local_objectives.draws_in_the_middle, 0, first=3, suggestions=(x, y))
        assert said[0]["writing"] == note
        assert said[0]["draws_digest"] == digest(x, y)
        assert values_of(said)[0] == x[1]


def test_a_paused_objective_all_of_whose_reports_were_accepted_says_nothing_again(scheduler):
    with scheduler() as ours:
        x, y = paused(ours)
        said = ours.run(local_objectives.draws_in_the_middle, 0, first=5, suggestions=(x, y))
        assert [message["op"] for message in said] == ["epoch", "epoch", "returned"]


def test_a_paused_objective_whose_draws_are_not_the_accepted_ones_starts_over(scheduler):
    with scheduler() as ours:
        x, _ = paused(ours)
        other = ("x", 0.625, x[2], 0.625)
        ours.updates.clear()
        said = ours.run(local_objectives.draws_in_the_middle, 0, first=2, suggestions=(other,))
        (y,) = draws_of(said)
        assert values_of(said) == [0.625] * 2 + [0.625 + y[1]] * 3
        assert said[-1]["draws_digest"] == digest(other, y)


def test_an_objective_cannot_draw_a_parameter_again_with_another_value(scheduler):
    with scheduler() as ours:
        last = ours.run(local_objectives.draws_again, 0)[-1]
        assert last["op"] == "failed"
        assert "x of trial 0 was drawn already" in last["message"]


def remarks(said):
    return [message["text"] for message in said if message["op"] == "remarked"]


def test_a_sampler_that_did_not_begin_the_study_is_reseeded_and_the_story_says_so(scheduler):
    with scheduler() as ours:
        first = ours.run(local_objectives.sphere, 0)
        second = ours.run(local_objectives.sphere, 1)
        assert remarks(first) == remarks(second) == [], "it began the study and went on"
        accepted = list(ours.updates)
    # The same sampler in the trainer that comes after a crash: trial 0 has drawn all it draws.
    with TrainerProcess(ours.folder / "log", answers_history=False) as ours.trainer:
        ours.updates = [u for u in accepted if u["n"] == 0]
        (text,) = remarks(ours.run(local_objectives.sphere, 0))
        assert "began again" in text
        after = ours.run(local_objectives.sphere, 1)
        assert drawn(after)["x"] not in (drawn(first)["x"], drawn(second)["x"])
        assert remarks(after) == [], "once for a trainer"


def test_an_artifact_that_a_repeated_objective_uploads_takes_the_place_of_the_first(scheduler):
    with scheduler() as ours:
        for number, folder in enumerate(("a", "b")):
            argv = ("train.py", str(ours.folder / "artifacts"), folder)
            ours.run(local_objectives.uploads, 0, argv=argv)
            keys = {key for u in ours.updates for key, _ in u.get("system_attrs", ())}
            found = [json.loads(json.loads(text)) for _, text in _artifacts(ours.updates).items()]
            assert len(keys) == len(found) == 2, f"after attempt {number}"
            assert [each["filename"] for each in found] == [f"{folder}0.txt", f"{folder}1.txt"]
        stored = ours.folder / "artifacts" / found[1]["artifact_id"]
        assert stored.read_text() == "b1", "the newest file is the one that counts"


def _artifacts(updates):
    """The last value of each of the trial's system attributes."""
    return {key: text for u in updates for key, text in u.get("system_attrs", ())}


def test_the_pruner_compares_with_the_history_of_the_other_trials(scheduler):
    with scheduler(pruner=optuna.pruners.MedianPruner(n_startup_trials=2)) as ours:
        (*epochs, last) = ours.run(local_objectives.prunes, 0, directions=["maximize"])
        assert (last["value"], last["pruned"], len(epochs)) == (100.0, False, 10)
        for number in (1, 2):
            steps = [(0, 0.0), (2, 2.0), (4, 5.0), (6, 9.0)]
            ours.update(number, state="complete", values=[1.0], started=1.0, ended=2.0, steps=steps)
        (*epochs, last) = ours.run(local_objectives.prunes, 3, directions=["maximize"])
        # At step 4 the three others have 4, 5 and 5.
        assert [m["metrics"]["step"] for m in epochs] == [0.0, 2.0, 4.0]
        assert (last["value"], last["pruned"]) == (4.0, True)


def test_no_attempt_is_pruned_where_an_accepted_report_says_that_the_trial_went_on(scheduler):
    with scheduler(pruner=optuna.pruners.ThresholdPruner(upper=-1.0)) as ours:
        (*_, last) = ours.run(local_objectives.prunes, 0)
        assert (last["value"], last["pruned"]) == (0.0, True)
        (*_, last) = ours.run(local_objectives.prunes, 1, first=4)
        assert (last["value"], last["pruned"]) == (4.0, True), "at the last accepted report"


def test_attributes_travel_with_the_trial_and_those_of_the_study_are_a_request(scheduler):
    with scheduler() as ours:
        *_, written, returned = ours.run(local_objectives.annotates, 0)
        assert written["writing"]["user_attrs"] == [["array", "[3]"]]
        assert returned["value"] == 1.0
        (request,) = ours.requests
        assert request["command"] == "annotate"
        assert request["body"]["writing"] == {"user_attrs": [["owner", '"nobody"']]}


def test_a_request_carries_the_trial_and_the_number_of_the_call(scheduler):
    with scheduler() as ours:
        assert ours.run(local_objectives.enqueues, 4)[-1]["op"] == "returned"
        first = list(ours.requests)
        assert first[0]["command"] == "add"
        assert [each["body"]["call"] for each in first] == [
            f"s-0004.{n}" for n in range(1, len(first) + 1)
        ]
        assert first[-1]["command"] == "stop"
        body = first[0]["body"]
        assert (body["state"], body["writing"]["user_attrs"]) == ("waiting", [["why", '"a guess"']])
        assert ["fixed_params", '{"x": 0.25}'] in body["writing"]["system_attrs"]
        # Repeated, each call has the number that it had.
        ours.requests.clear()
        ours.run(local_objectives.enqueues, 4)
        assert [each["body"]["call"] for each in ours.requests][:1] == ["s-0004.1"]


def test_choices_may_be_any_objects(scheduler):
    # One by one: Optuna shares what it draws together as JSON, and fails.
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=2, multivariate=False)
    with scheduler(sampler) as ours:
        for number in range(6):
            said = ours.run(local_objectives.chooses_objects, number)
            returned = said[-1]
            assert (returned["op"], returned["value"]) == ("returned", float(number))
            assert drawn(said)["reader"] == "json.decoder.JSONDecoder"
            assert drawn(said)["kind"] in ("tuple", "(1, 'a')", "json.encoder.JSONEncoder", None)


def test_a_nan_that_is_reported_is_kept(scheduler):
    with scheduler() as ours:
        first, second, returned = ours.run(local_objectives.reports_nan, 0)
        assert first["metrics"] == {"accuracy": "nan", "step": 0.0}
        assert second["metrics"] == {"accuracy": "-inf", "step": 3.0}
        assert (returned["op"], returned["value"]) == ("returned", 2.0)
