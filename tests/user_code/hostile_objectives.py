"""Objectives that do to their trainer what no user should. They need no torch."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import penstock


def forks_and_runs_on(trial):
    """Parent and child both report twice and return."""
    child = os.fork()
    value = 2.0 if child == 0 else 1.0
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("the child ended with", status, flush=True)
    for step in range(2):
        trial.report(value, step)
    return value


def forks_and_returns(trial):
    """The child has nothing to report: it returns at once, or raises, or calls sys.exit."""
    for way in range(3):
        child = os.fork()
        if child == 0:
            if way == 1:
                raise ValueError("the child has lost its way")
            if way == 2:
                sys.exit(5)
            return 2.0
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("the child ended with", status, flush=True)
    return 1.0


@penstock.epoch_function
def forks_in_a_loop(trial):
    """The child goes on to the next epoch."""
    for epoch in trial.epochs():
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            trial.report({"accuracy": float(epoch)})


def square(x):
    return x * x


def forking_pool():
    return ProcessPoolExecutor(1, mp_context=get_context("fork"))


def uses_a_pool(trial):
    with forking_pool() as pool:
        return float(sum(pool.map(square, range(4))))


def dies_beside_a_child(trial):
    """A pool's child lives on when the trainer is killed."""
    pool = forking_pool()
    trial.report(float(pool.submit(os.getpid).result()), 0)
    time.sleep(3600)


def takes_a_gigabyte(trial):
    return float(len(bytearray(1 << 30)))


@penstock.epoch_function
def takes_more_and_more(trial):
    """Half a gigabyte an epoch."""
    kept = []
    for epoch in trial.epochs():
        kept.append(bytearray(1 << 29))
        trial.report({"accuracy": epoch})


class Mute(Exception):
    """Neither its text nor its repr can be had."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Liar(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")


class Nameless(Exception, metaclass=Liar):
    pass


class Ends(Exception):
    """An exception whose ``__str__`` ends the process."""

    def __str__(self):  # noqa: PLE0307 - that is its point
        sys.exit(7)


class NoCode(SystemExit):
    @property
    def code(self):
        raise RuntimeError("no code")


class NotThere(ModuleNotFoundError):
    @property
    def name(self):
        raise KeyboardInterrupt


class Bare(Exception):
    """Its fields raise where the formatter of tracebacks looks at them."""

    def __getattribute__(self, name):
        raise ZeroDivisionError(name)


def circle():
    first, second = ValueError("chicken"), ValueError("egg")
    first.__cause__, second.__cause__ = second, first
    return first


ERRORS = {
    "mute": Mute,
    "nameless": lambda: Nameless("called nothing"),
    "ends": Ends,
    "no code": lambda: NoCode(3),
    "not there": lambda: NotThere("who knows"),
    "bare": lambda: Bare("bones"),
    "circle": circle,
    "half a character": lambda: ValueError("\ud800 \0 \x1b[31m"),
    "huge": lambda: ValueError("x" * (1 << 24)),
    "group": lambda: ExceptionGroup("many", [ValueError(str(n)) for n in range(3)]),
    "interrupt": lambda: KeyboardInterrupt("Ctrl-C"),
    "generator": lambda: GeneratorExit("over"),
    "own kind": lambda: penstock.TrialFailed("weather", "it rains"),
    "odd kind": lambda: penstock.TrialFailed([], "no kind at all"),
    "long exit": lambda: SystemExit("y" * (1 << 24)),
}


def raises(trial):
    """Raises the error of this name, past whatever it reported."""
    raise ERRORS[trial.suggest_categorical("error", list(ERRORS))]()


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("no repr")


VALUES = {
    "digits": 10**10_000,
    "set": {1, 2},
    "bytes": b"\xff",
    "unspeakable": [Unspeakable()],
    "half": "\ud800",
}


def returns(trial):
    return VALUES[trial.suggest_categorical("value", list(VALUES))]


def reports(trial):
    trial.report(VALUES[trial.suggest_categorical("value", list(VALUES))], 0)


def reports_a_far_step(trial):
    trial.report(1.0, 10**400)


def asks_by_number(trial):
    trial.suggest_float(5, 0, 1)


def asks_by_half_a_character(trial):
    trial.suggest_float("\ud800", 0, 1)


def chooses_nan(trial):
    trial.suggest_categorical("x", [1.0, float("nan")])


def chooses_too_much(trial):
    trial.suggest_categorical("x", ["x" * (1 << 21), "y"])


def is_bound_by_a_pair(trial):
    trial.set_constraint(("a", "b"), 1.0)
    return 0.5


def notes_under_half_a_character(trial):
    trial.set_user_attr("\ud800", 1)


def notes_what_is_no_json(trial):
    trial.set_user_attr("lock", threading.Lock())


def deep():
    """A dict as deep as none should be."""
    inner = {}
    for _ in range(100_000):
        inner = {"a": inner}
    return inner


@penstock.epoch_function
def reports_too_many(trial):
    """More names than a message can bear, whatever it catches."""
    for _ in trial.epochs():
        try:
            trial.report(
                {"accuracy": 1.0} | {f"a metric with the number {n}": n for n in range(1 << 15)}
            )
        except Exception:
            print("swallowed", flush=True)


@penstock.epoch_function
def reports_by_pairs(trial):
    """Names of all kinds; a value of none."""
    for epoch in trial.epochs():
        given = {"accuracy": 1, 5: True, ("a", 1): 2.0, "nan": float("nan")}
        trial.report(given | ({"many": 10**400} if epoch == 2 else {}))


IMPORTED_IN_MAIN_THREAD = threading.current_thread() is threading.main_thread()


def sets_an_alarm(trial):
    """Gives the number of the step in which the alarm rang, if it was imported as scripts are."""
    assert IMPORTED_IN_MAIN_THREAD
    signal.signal(signal.SIGALRM, rings)
    for step in range(3):
        if step == 1:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            trial.report(float(step), step)
            if step == 1:
                time.sleep(60)
        except Alarm:
            return float(step)
    return -1.0


def leaves_an_alarm(trial):
    """It rings when the trial is over."""
    signal.signal(signal.SIGALRM, rings)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return 1.0


def asks_with_an_alarm(trial):
    """It rings while the trial waits for its parameter."""
    signal.signal(signal.SIGALRM, rings)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        trial.suggest_float("x", 0, 1)
    except Alarm:
        return trial.suggest_float("y", 0, 1)


class Alarm(Exception):
    pass


def rings(*_):
    print("rings", flush=True)
    raise Alarm


def is_in_main_thread(trial):
    """Reports whether it has the main thread, and then stands still."""
    for step in range(9):
        trial.report(float(threading.current_thread() is threading.main_thread()), step)
