"""Errors that are meant for the user come without our frames, and with all of theirs."""

import logging
import traceback
from contextlib import contextmanager
from functools import partial
from inspect import signature

import pytest
from penstock import UsageError, create_study
from penstock.app.host.tracebacks import to_the_user
from penstock.base.errors import (
    BackendError,
    IllegalTransition,
    PenstockError,
    TrialFailed,
)


def files(error):
    """The file names of a traceback, without those of pytest's own machinery."""
    return [
        frame.filename.rpartition("/")[2] for frame in traceback.extract_tb(error.__traceback__)
    ]


def ours(name="penstock.app.client.study.study"):
    """A function as if it were a module's of ours: it calls what it is given, and may fail."""
    names = {"__name__": name, "contextmanager": contextmanager, "BackendError": BackendError}
    code = """
@contextmanager
def answering():
    try:
        yield
    except OSError as error:
        raise BackendError("the broker is away") from error

def call(function):
    with answering():
        return function()

def deep(kind, words):
    def deeper():
        raise kind(words)
    return call(deeper)
"""
    exec(compile(code, "ours.py", "exec"), names)
    return names


def test_a_refused_argument_ends_at_the_users_own_line():
    with pytest.raises(UsageError) as refusal:
        create_study(direction="up")
    assert files(refusal.value) == ["test_boundary.py", "tracebacks.py"]


def test_the_cause_of_what_the_message_says_is_only_logged(caplog):
    with caplog.at_level(logging.DEBUG), pytest.raises(BackendError, match="away") as failure:
        to_the_user(ours()["deep"])(OSError, "connection refused")
    shown = "".join(traceback.format_exception(failure.value))
    assert "ours.py" not in shown
    assert "OSError: " not in shown
    assert "connection refused" in caplog.text


def test_an_error_in_the_users_callback_keeps_its_frames_and_its_cause():
    cause = KeyError("x")

    def callback():
        raise UsageError("mine") from cause

    with pytest.raises(UsageError) as failure:
        to_the_user(ours()["call"])(callback)
    assert files(failure.value) == ["test_boundary.py", "tracebacks.py", "test_boundary.py"]
    assert failure.value.__cause__ is cause


def test_a_bug_of_ours_keeps_every_frame():
    with pytest.raises(IllegalTransition) as failure:
        to_the_user(ours()["deep"])(IllegalTransition, "a bug")
    assert files(failure.value).count("ours.py") == 3


def test_the_face_of_a_function_stays_as_it_is():
    assert next(iter(signature(create_study).parameters)) == "storage"
    assert create_study.__doc__


@pytest.mark.parametrize("kind", [UsageError, BackendError, partial(TrialFailed, "exception")])
def test_what_others_wrote_into_an_error_does_not_steer_a_terminal(kind):
    raw = "\x1b]0;title\x07\x1b[31mred\x1b[0m\r\x9b2J"

    def failing():
        error = kind(f"no: {raw}")
        error.add_note(f"Traceback\n  ValueError: {raw}")
        raise error

    with pytest.raises(PenstockError) as failure:
        to_the_user(failing)()
    assert str(failure.value) == "no: red"
    assert failure.value.__notes__ == ["Traceback\n  ValueError: red"]
