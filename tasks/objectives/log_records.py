"""Log records of an objective, on their way from the trainer to the handlers of its script.

Theory of operation. Handlers that a script has set (``logging.basicConfig(filename=...)``) are in
the script's process. So a ``LogPlan`` tells the trainers which loggers have handlers there, and at
which levels. A trainer collects the records of the trial at work, and writes them with the report
of each epoch, and at the trial's end, as a system attribute of the trial. So they count under the
fence of the attempt, and an epoch that is repeated in another attempt writes the same attribute
again. The script handles each record once, in the order of acceptance. No other process reads the
records.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: Prefix of the system attributes that hold records. The number of the epoch follows it.
KEY = "penstock:log:"
#: Top-level loggers whose records are not the objective's.
_NOT_THEIRS = ("optuna", "penstock")
#: Most characters of records that are kept of one epoch, and of one trial: the ledger holds them.
MOST_OF_EPOCH, MOST_OF_TRIAL = 1 << 18, 1 << 22

#: A record: logger, level, text, time (seconds), file, line, function, traceback.
Record = Sequence[Any]


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The log levels and loggers that trainers collect for a script."""

    #: The levels that the script has set, by logger; the root's name is empty.
    levels: tuple[tuple[str, int], ...]
    #: The loggers that have handlers in the script, and whose records do not reach the root logger.
    apart: tuple[str, ...]


def plan_of_script() -> LogPlan | None:
    """Return the plan that this process's log handlers need; None if it has no handlers."""
    root = logging.getLogger()
    by_name = {
        name: logger
        for name, logger in list(root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] not in _NOT_THEIRS
    }
    handled = [name for name, logger in by_name.items() if _handles(logger)]
    if not handled and not _handles(root):
        return None
    levels = tuple((name, each.level) for name, each in by_name.items() if each.level)
    apart = tuple(name for name in handled if not _reaches_root(by_name[name]))
    return LogPlan((("", root.level), *levels), apart)


def _handles(logger: logging.Logger) -> bool:
    return any(map(_is_real, logger.handlers))


def _is_real(handler: logging.Handler) -> bool:
    return not isinstance(handler, logging.NullHandler)


def _reaches_root(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if not logger.propagate:
            return False
        logger = logger.parent
    return True


class Collector(logging.Handler):
    """Collects the records of the trial that is at work in this trainer."""

    def __init__(self, plan: LogPlan) -> None:
        super().__init__()
        self._records: list[Record] = []
        self._size = self._dropped = 0
        for name, level in plan.levels:
            logging.getLogger(name or None).setLevel(level)
        self._loggers = [logging.getLogger(name or None) for name in ("", *plan.apart)]
        for logger in self._loggers:
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep ``record``, and print it, so that it is in the trainer's log, too.

        A record that a handler in this process gets is not kept: the code sets that handler in
        every process that imports it.
        """
        if record.name.partition(".")[0] in _NOT_THEIRS or self._is_handled(record.name):
            return
        try:
            text = record.getMessage()
            if record.exc_info and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
        except Exception:  # as logging's own handlers do
            self.handleError(record)
            return
        message = f"{text}\n{record.exc_text}" if record.exc_text else text
        sys.stderr.write(f"{record.levelname}:{record.name}:{message}\n")
        self._size += len(text) + len(record.exc_text or "")
        if self._size > MOST_OF_EPOCH:
            self._dropped += 1
            return
        source = (record.pathname, record.lineno, record.funcName)
        self._records.append(
            (record.name, record.levelno, text, record.created, *source, record.exc_text)
        )

    def _is_handled(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(each is not self and _is_real(each) for each in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False

    def close(self) -> None:
        """Stop collecting."""
        for logger in self._loggers:
            logger.removeHandler(self)
        super().close()

    def take(self) -> list[Record]:
        """Remove and return the records since the last call."""
        records, dropped = self._records, self._dropped
        if dropped:
            records.append(
                notice(f"{dropped} more lines of this epoch are in `penstock logs` only")
            )
        self._records, self._size, self._dropped = [], 0, 0
        return records


def notice(words: str) -> Record:
    """Return a warning by Penstock as a record."""
    return ("penstock", logging.WARNING, words, time.time(), "", 0, "", None)


def to_text(records: Sequence[Record]) -> str:
    """Return records as the JSON text of an attribute."""
    return json.dumps(records)


def from_text(text: str) -> Iterator[logging.LogRecord]:
    """Yield the records in the text of an attribute."""
    for name, level, message, created, file, line, function, trace in json.loads(text):
        yield logging.makeLogRecord(
            {
                "name": name,
                "levelno": level,
                "levelname": logging.getLevelName(level),
                "msg": message,
                "created": created,
                "msecs": (created % 1) * 1000,
                "pathname": file,
                "filename": file.rpartition("/")[2],
                "module": file.rpartition("/")[2].removesuffix(".py"),
                "lineno": line,
                "funcName": function,
                "exc_text": trace,
            }
        )
