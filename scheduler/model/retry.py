"""Rules for retrying a trial, given its failure and the number of failures in a row.

Failures of the user's own code (an exception, NaN, a missing metric) repeat exactly in an exact
trial, so a trial is retried after them only as often as the study says. A process that died may
have been unlucky (the kernel's out-of-memory killer, an operator), so deaths have a limit of their
own. A loss is the infrastructure's fault; its limit only prevents endless loops.
"""

from __future__ import annotations

#: Failure kinds that a worker may report, and what each means.
KINDS = {
    "exception": "the training code raised",
    "nan": "the study's metric is NaN or infinite",
    "metric": "the study's metric was not among those reported",
    "exit": "the training code ended its process",
    "memory": "the training code ran out of memory",
    "data": "the data set is not there",
    "code": "the training code cannot be imported on the worker",
    "shards": "a batch has fewer examples than the study has shards",
    "inexact": "the training code cannot be trained as exactly as the study asks",
    "diverged": "a replayed epoch does not have the bits that were accepted",
    "checkpoint": "a checkpoint is not there that trials begin with, or that the code should make",
    "fork": "the trial cannot go on from another one's state",
    "system": "the trial cannot run under its system configuration",
    "died": "the trainer process died",
    "timeout": "an epoch took longer than the study's epoch_timeout",
}

#: Failures that every trial would meet. The first report of one ends the study.
ENDS_STUDY = frozenset({"inexact", "checkpoint"})

#: Number of attempts in a row without an accepted epoch after which a trial fails.
CRASH_LIMIT = 4
KILL_LIMIT = 10
LOSS_LIMIT = 50


def retry_failure(kind: str, message: str, failures: int, retries: int) -> bool:
    """Return True if a trial whose code failed ``failures`` times in a row is tried again."""
    if kind == "died":
        # SIGKILL comes from outside (operator, out-of-memory killer), other signals from the code.
        return failures < (KILL_LIMIT if "signal 9" in message else CRASH_LIMIT)
    return failures <= retries


def retry_loss(losses: int) -> bool:
    """Return True if a trial lost ``losses`` times in a row is tried again."""
    return losses < LOSS_LIMIT
