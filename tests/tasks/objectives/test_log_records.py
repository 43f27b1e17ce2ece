"""An objective's log records: those that handlers ask for, are collected, and arrive."""

import logging

import pytest
from penstock.tasks.objectives import log_records
from penstock.tasks.objectives.log_records import (
    Collector,
    LogPlan,
    from_text,
    plan_of_script,
    to_text,
)


class Kept(logging.Handler):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def root(monkeypatch):
    """The root logger and no others, as in a process that has set nothing."""
    root = logging.RootLogger(logging.WARNING)
    manager = logging.Manager(root)
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logging.Logger, "root", root)
    monkeypatch.setattr(logging.Logger, "manager", manager)
    return root


@pytest.fixture
def collecting(root):
    """Make a collector, in a process without other handlers: pytest has put its own there."""

    def made():
        root.handlers.clear()
        return Collector(LogPlan((("", logging.INFO), ("mine", logging.DEBUG)), ("apart",)))

    return made


def test_a_script_without_handlers_asks_for_nothing(root):
    root.handlers.clear()
    logging.getLogger("library").addHandler(logging.NullHandler())
    logging.getLogger("optuna").addHandler(logging.StreamHandler())
    assert plan_of_script() is None


def test_a_script_with_handlers_asks_for_its_levels_and_for_loggers_apart(root):
    root.addHandler(Kept())
    root.setLevel(logging.INFO)
    logging.getLogger("mine").setLevel(logging.DEBUG)
    apart = logging.getLogger("apart")
    apart.addHandler(Kept())
    apart.propagate = False
    below = logging.getLogger("mine.below")
    below.addHandler(Kept())
    assert plan_of_script() == LogPlan((("", logging.INFO), ("mine", logging.DEBUG)), ("apart",))


def test_records_come_as_they_were_logged(collecting, capsys):
    collector = collecting()
    logging.getLogger("mine").debug("half of %d%%", 7)
    logging.getLogger("other").debug("below the root's level")
    try:
        int("no")
    except ValueError:
        logging.getLogger().exception("failed")
    first, second = from_text(to_text(collector.take()))
    assert (first.name, first.levelname, first.getMessage()) == ("mine", "DEBUG", "half of 7%")
    assert (first.filename, first.funcName) == (
        "test_log_records.py",
        "test_records_come_as_they_were_logged",
    )
    assert logging.Formatter("%(message)s").format(second).endswith("with base 10: 'no'")
    assert collector.take() == []
    said = capsys.readouterr().err
    assert "DEBUG:mine:half of 7%\n" in said, "it is in the trainer's log, too"


def test_records_apart_from_the_root_are_collected(collecting):
    collector = collecting()
    logging.getLogger("apart").propagate = False
    logging.getLogger("apart").warning("here")
    assert [record[2] for record in collector.take()] == ["here"]


def test_what_optuna_and_penstock_log_is_not_the_objectives(collecting):
    collector = collecting()
    for name in ("optuna.study", "penstock.x"):
        logging.getLogger(name).error("not theirs")
    assert collector.take() == []


def test_what_has_a_handler_in_the_trainer_is_left_to_it(collecting):
    collector = collecting()
    logging.getLogger("mine").addHandler(Kept())
    logging.getLogger("mine.below").warning("handled there")
    logging.getLogger("other").warning("for the script")
    assert [record[2] for record in collector.take()] == ["for the script"]


def test_a_flood_is_cut_with_a_word_about_it(collecting, monkeypatch):
    collector = collecting()
    monkeypatch.setattr(log_records, "MOST_OF_EPOCH", 10)
    for _ in range(4):
        logging.getLogger().info("5 5 5")
    assert [record[2] for record in collector.take()] == [
        *("5 5 5", "5 5 5"),
        "2 more lines of this epoch are in `penstock logs` only",
    ]


def test_a_collector_that_is_closed_collects_nothing(root):
    before = list(root.handlers)
    made = Collector(LogPlan((), ()))
    assert root.handlers == [*before, made]
    made.close()
    assert root.handlers == before
