"""Rules for retrying a trial, given its failure and the number of failures in a row.

Failures of the user's own code (an exception, NaN, a missing metric) repeat exactly if the trial's
bits are reproducible. So a trial is retried after them only as often as the study says
(``StudySpec.retries``). The death of a trainer process may have had a cause outside the trial (the
kernel's out-of-memory killer, an operator), so deaths have limits of their own. The loss of an
attempt is the infrastructure's fault; the limit of losses only prevents endless loops.
"""

from __future__ import annotations

#: Kinds of failures that a worker may report, each with its meaning.
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

#: Kinds of failures that every trial of the study would meet. The first one ends the study.
ENDS_STUDY = frozenset({"inexact", "checkpoint"})

#: Number of attempts in a row without an accepted epoch at which a trial fails, if its process died
#: by a fault of its own code.
CRASH_LIMIT = 4
#: The same if its process was killed from outside (signal 9).
KILL_LIMIT = 10
#: The same if its attempts were lost.
LOSS_LIMIT = 50


def retry_failure(kind: str, message: str, failures: int, retries: int) -> bool:
    """Return True if a trial whose code failed ``failures`` times in a row is tried again."""
    if kind == "died":
        # SIGKILL comes from outside (an operator, the kernel). Other signals are the code's fault.
        return failures < (KILL_LIMIT if "signal 9" in message else CRASH_LIMIT)
    return failures <= retries


def retry_loss(losses: int) -> bool:
    """Return True if a trial whose attempts were lost ``losses`` times in a row is tried again."""
    return losses < LOSS_LIMIT
