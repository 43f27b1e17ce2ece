"""A trainer answers, names and survives anything that user code raises, returns or reports."""

from __future__ import annotations

import socket

import pytest
from penstock.base.errors import TrialFailed
from penstock.scheduler.model.retry import KINDS
from penstock.tasks.process import failure
from penstock.tasks.process.pipe import Pipe
from trainers.trainer_process import TrainerProcess, segment
from user_code import hostile_objectives, trainees
from user_code.hostile_objectives import ERRORS, VALUES


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    with TrainerProcess(tmp_path_factory.mktemp("trainer") / "log") as trainer:
        yield trainer


def failed(trainer, code, **params):
    """Run a segment that only fails, return its message, and check that the next one runs."""
    (said,) = trainer.carry_out(segment(code, params=params))
    assert said["op"] == "failed"
    assert len(said["message"]) < 3_000
    assert len(said["traceback"]) <= 20_000
    said["message"].replace("\ud800", "?").encode()
    (empty,) = trainer.carry_out(segment(code, contract="empty"))
    assert empty["op"] == "epoch"
    return said


SAID = {
    "mute": ("exception", "Mute: <a Mute, whose text could not be had: that raised RuntimeError>"),
    "nameless": ("exception", "Nameless: called nothing"),
    "ends": ("exception", "Ends: <a Ends, whose text could not be had: that raised SystemExit>"),
    "no code": ("exception", "NoCode: 3"),
    "not there": ("exception", "NotThere: who knows"),
    "bare": ("exception", "Bare: "),
    "circle": ("exception", "ValueError: chicken"),
    "half a character": ("exception", "ValueError: \ud800 \0 \x1b[31m"),
    "huge": ("exception", "x… (16,777,216 characters)"),
    "group": ("exception", "ExceptionGroup: many (3 sub-exceptions)"),
    "interrupt": ("exception", "KeyboardInterrupt: Ctrl-C"),
    "generator": ("exception", "GeneratorExit: over"),
    "own kind": ("exception", "TrialFailed: it rains"),
    "odd kind": ("exception", "TrialFailed: no kind at all"),
    "long exit": ("exit", "the training code called sys.exit('yyy"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_any_make_is_the_failure_of_its_trial(trainer, error):
    said = failed(trainer, hostile_objectives.raises, error=error)
    kind, words = SAID[error]
    assert said["kind"] == kind
    assert words in said["message"]


#: Optuna's words for a value when it is returned and when it is reported.
OF_VALUES = {
    "digits": ("int too large to convert to float", "int too large to convert to float"),
    "set": ("is no result: The value {1, 2} could not be cast to float", "type '<class 'set'>'"),
    "bytes": ("is no result: The value b'\\xff' could not be cast", "type '<class 'bytes'>'"),
    "unspeakable": ("RuntimeError: no repr", "type '<class 'list'>'"),
    "half": (r"is no result: The value '\ud800' could not be cast", "type '<class 'str'>'"),
}


@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_is_no_number_is_named(trainer, value):
    for code, words in zip(
        (hostile_objectives.returns, hostile_objectives.reports), OF_VALUES[value], strict=True
    ):
        said = failed(trainer, code, value=value)
        assert said["kind"] == "exception"
        assert words in said["message"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (hostile_objectives.reports_a_far_step, "a step that a float can hold"),
        (hostile_objectives.asks_by_number, "the name of a parameter = 5 is refused"),
        (hostile_objectives.asks_by_half_a_character, r"the name of a parameter = '\ud800'"),
        (hostile_objectives.chooses_nan, "choices of 'x' = nan is refused"),
        (hostile_objectives.notes_under_half_a_character, r"of an attribute = '\ud800'"),
        (
            hostile_objectives.notes_what_is_no_json,
            "the attribute 'lock' is no JSON, and it cannot",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_told_is_refused_with_its_name(trainer, code, words):
    assert words in failed(trainer, code)["message"]


def test_the_key_of_a_constraint_is_its_text_as_in_optuna(trainer):
    written, returned = trainer.carry_out(segment(hostile_objectives.is_bound_by_a_pair))
    assert written["writing"] == {"system_attrs": [["constraints:('a', 'b')", "1.0"]]}
    assert (returned["op"], returned["constraints"]) == ("returned", {"('a', 'b')": 1.0})


def test_a_message_that_no_worker_could_bear_is_refused_with_its_largest_field(trainer):
    task = segment(hostile_objectives.chooses_too_much, define_by_run=True)
    (said,) = trainer.carry_out(task)
    assert (said["op"], said["kind"]) == ("failed", "exception")
    assert "suggest: distribution has 2,097," in said["message"]
    (said,) = trainer.carry_out(segment(hostile_objectives.reports_too_many, 1, 2))
    assert (said["op"], said["kind"]) == ("failed", "exception")
    assert "epoch: metrics has 1," in said["message"]


def test_an_epoch_functions_metrics_are_told_by_name(trainer):
    first, second = trainer.carry_out(segment(hostile_objectives.reports_by_pairs, 1, 2))
    assert first["metrics"] == {"accuracy": 1.0, "5": 1.0, "('a', 1)": 2.0}
    assert (second["op"], second["kind"]) == ("failed", "exception")
    assert "metrics['many'] = 1000" in second["message"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (trainees.GivesSet, "metrics()['f1'] = {1, 2} is refused: allowed is a number"),
        (trainees.GivesThree, "metrics()[3] = tensor([1., 1., 1.]) is refused"),
    ],
)
def test_a_trainables_metric_that_is_no_number_is_named(trainer, code, words):
    assert words in failed(trainer, code)["message"]


def test_the_kinds_of_failures_are_the_schedulers():
    """But those that only a worker can tell."""
    assert KINDS.keys() - {"died", "timeout"} == failure.KINDS


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"a": float("nan")}, "metrics['a'] = nan cannot be sent to the worker: ValueError"),
        ({"a": {1}}, "metrics['a'] = {1} cannot be sent to the worker: TypeError"),
        ({"a": b"x"}, "metrics['a'] = b'x' cannot"),
        ({"a": {"b": 10**5000}}, "metrics['a']['b'] = <a int, whose text could not be had"),
        (
            {("a", 1): 1.0},
            "metrics = {('a', 1): 1.0} cannot be sent to the worker: TypeError: keys",
        ),
        (hostile_objectives.deep(), "cannot be sent to the worker: RecursionError"),
    ],
    ids=range(6),
)
def test_what_is_no_json_is_named_and_nothing_of_it_is_sent(metrics, words):
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TrialFailed) as raised:
        Pipe(theirs).say("epoch", epoch=1, metrics=metrics)
    assert words in str(raised.value)
