"""Sentences about the events of a trial, one sentence for each event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ....profiling.devices.device import slot_name
from ....profiling.devices.signature import agree
from ....profiling.knobs.knobs import config_text
from ....scheduler.model import events as happened
from ....scheduler.model.retry import KINDS
from ....tasks.contracts.shared_state import LEFT
from ....tasks.objectives.log_records import KEY as LOG_RECORDS
from ...common.text import count, duration, instead, number
from ...extensions import of_ends

if TYPE_CHECKING:
    from ....scheduler.model.events import Event
    from ....scheduler.model.study import Metrics
    from ....scheduler.model.writing import Attributes
    from ...ledger.rows import EpochRow


#: The beginning of a remark that only names the environment of the trainer (``app.node.worker``).
IN_ENVIRONMENT = "in "
#: The shortest time without a running epoch, in seconds, that the story mentions.
LONG = 1.0


def planless(event: happened.PolicyFailed) -> str:
    """Return a sentence about a policy that gave no plan: the reason and the consequence."""
    return f"policy {event.policy or 'of yours'} {event.reason}: {instead()}"


def fence_of(event: Event) -> int | None:
    """Return the fence (number) of the attempt that reported ``event``.

    The result is None for an event of a user or of the scheduler.
    """
    return getattr(event, "fence", None) or None


def sentence(
    event: Event,
    metric: str,
    accepted: Mapping[tuple[int, int], EpochRow],
    attempts: Mapping[int, int],
    several: Collection[str] = (),
    *,
    bounds: Metrics = (),
) -> str:
    """Return ``event`` as a sentence.

    ``accepted`` contains the trial's accepted epochs by epoch and fence. ``attempts`` contains the
    number of each attempt among the trial's attempts, by the attempt's fence. ``several`` contains
    the devices with several slots. ``bounds`` contains the constraints of the study.
    """
    attempt = f"attempt {attempts.get(fence_of(event) or 0)}"
    match event:
        case happened.EpochReported():
            last = (row for (epoch, _), row in accepted.items() if epoch == event.epoch - 1)
            before = next(last, None)
            row = accepted.get((event.epoch, event.fence))
            text = f"epoch {event.epoch} was reported by {attempt} and did not count"
            if row is not None:
                where = slot_name(row.device, row.slot, several)
                text = _epoch(event, metric, row, before, where)
            text += _signatures(event, before)
        case happened.Durable():
            text = f"the state after epoch {event.epoch} is in the store"
        case happened.Undurable():
            text = f"its state could not be written to the store: {event.reason}"
        case happened.Replayed() | happened.Remarked():
            text = _remark(event, attempt)
        case happened.WidthsMeasured():
            text = _widths(event)
        case happened.Suggested():
            text = f"the sampler drew {event.name} = {number(event.value)}"
        case happened.TrialReturned():
            text = _returned(event, bounds)
        case happened.TrialTold() | happened.TrialAdded() | happened.TrialWritten():
            text = _by_hand(event, metric)
        case happened.AttemptFailed() | happened.AttemptLost():
            text = _ended(event, attempt)
        case _:
            text = _of_extension(event)
    return text


def _of_extension(event: Event) -> str:
    for sentences in of_ends("show", "SENTENCES"):
        if (says := sentences.get(type(event))) is not None:
            text: str = says(event)
            return text
    return kind_of(event)


def kind_of(event: Event) -> str:
    """Return a name for an event that has no sentence of its own."""
    if isinstance(event, happened.Unread):
        return f"{event.kind} of the extension {event.extension}, which is not there,"
    return type(event).__name__


def _epoch(
    event: happened.EpochReported,
    metric: str,
    row: EpochRow,
    before: EpochRow | None,
    where: str,
) -> str:
    if row.width > 1:
        where = ", ".join(device for device, _ in row.members)
    if row.system:
        where += f" with {config_text(row.system)}"
    if before is not None and before.width != row.width:
        where += f" ({count(row.width, 'device')}, {before.width} in the epoch before)"
    took, value = duration(event.seconds), number(row.value)
    if row.began is not None and row.at - row.began - event.seconds > LONG:
        took += f" of training, in turns over {duration(row.at - row.began)}"
    if event.together > 1:
        where += f", together with {count(event.together - 1, 'other trial')},"
    elif event.readers > 1 and event.together:
        where += ", some of its batches read by other trainers,"
    elif event.readers > 1:
        where += f", its batches read once for {event.readers} trials,"
    text = f"epoch {event.epoch} ended on {where} after {took}: {metric} {value}"
    stood = 0.0 if before is None else row.begin - before.at
    return f"{text}; it had waited {duration(stood)} before" if stood > LONG else text


def _remark(event: happened.Replayed | happened.Remarked, attempt: str) -> str:
    if isinstance(event, happened.Remarked):
        expected = event.text.startswith(IN_ENVIRONMENT)
        return f"{attempt} runs{' ' if expected else ', but '}{event.text}"
    epochs = f"epoch {event.first} is"
    if event.last > event.first:
        epochs = f"epochs {event.first} to {event.last} are"
    text = f"{epochs} computed again by {attempt}"
    return text + (f": {event.reason}" if event.reason else "")


def _ended(event: happened.AttemptFailed | happened.AttemptLost, attempt: str) -> str:
    if isinstance(event, happened.AttemptLost):
        how = "was refused by its node" if event.refused else "was lost"
        return f"{attempt} {how}: {event.reason}"
    why = KINDS.get(event.kind, event.kind)
    during = f" while {config_text(event.trying)} was tried" if event.trying else ""
    return f"{attempt} failed{during}, {why}: {event.message}"


def _by_hand(
    event: happened.TrialTold | happened.TrialAdded | happened.TrialWritten, metric: str
) -> str:
    """Return a sentence about an action of the trial's user or of the trial's objective."""
    match event:
        case happened.TrialAdded():
            return f"its user {_added(event)}"
        case happened.TrialWritten():
            return f"{'the objective' if event.fence else 'its user'} {_written(event)}"
    failed = f"that it failed {event.reason}".rstrip()
    said = failed if event.value is None else f"{metric} {number(event.value)}"
    return f"its user reported {said}"


def _added(event: happened.TrialAdded) -> str:
    """Return words for the way in which the user added a trial."""
    values = f": {', '.join(map(number, event.values))}" if event.values else ""
    return {
        "running": "asked for it",
        "waiting": "enqueued it",
        "complete": f"added it with its result{values}",
        "pruned": f"added it as pruned{values}",
    }.get(event.state, "added it as failed")


def _written(event: happened.TrialWritten) -> str:
    """Return words for everything that an objective or a user wrote to the trial."""
    writing, parts = event.writing, []
    if writing.suggestions:
        suggested = ", ".join(f"{each.name} = {number(each.value)}" for each in writing.suggestions)
        parts.append(f"drew {suggested}")
    if writing.steps:
        steps = ", ".join(f"{number(value)} at step {step}" for step, value in writing.steps)
        parts.append(f"reported {steps}")
    if writing.user_attrs:
        parts.append(f"set {_names('attribute', writing.user_attrs)}")
    if system_notes := tuple(
        each for each in writing.system_attrs if not each[0].startswith((LEFT, LOG_RECORDS))
    ):
        parts.append(f"set Optuna's internal {_names('attribute', system_notes)}")
    if any(key.startswith(LOG_RECORDS) for key, _ in writing.system_attrs):
        parts.append("logged lines, which the script's handlers get")
    if any(key.startswith(LEFT) for key, _ in writing.system_attrs):
        parts.append("stored the objects that the script gets back from the best trial")
    values = ", ".join(map(number, event.values))
    outcomes = {
        "running": "took it",
        "complete": f"reported the result {values}",
        "pruned": "pruned it",
        "fail": f"reported that it failed {event.reason}".rstrip(),
    }
    parts += [outcomes[event.state]] if event.state in outcomes else []
    return ", ".join(parts) or "wrote nothing"


def _names(noun: str, attributes: Attributes) -> str:
    plural = "" if len(attributes) == 1 else "s"
    return f"{noun}{plural} {', '.join(name for name, _ in attributes)}"


def _widths(event: happened.WidthsMeasured) -> str:
    """Return the measured time of a step for each width (number of devices) of the trial.

    If no time was measured, return the reason.
    """
    steps = [f"{duration(took)} on {count(width, 'device')}" for width, took in event.seconds]
    text = (
        f"a step was measured: {', '.join(steps)}" if steps else "its epochs are too short to time"
    )
    if event.meeting and not event.met:
        text += f"; the other devices did not connect within {duration(event.meeting)}"
    return text


def _signatures(event: happened.EpochReported, before: EpochRow | None) -> str:
    """Return a note if the epoch's signature does not agree with that of the previous epoch.

    The signature is what the bits of an epoch depend on besides code, configuration and seed. The
    result is empty if the signatures agree.
    """
    if before is None or agree(before.signature, event.signature):
        return ""
    return f"; computed by {event.signature}, epoch {before.epoch} by {before.signature}"


def _returned(event: happened.TrialReturned, bounds: Metrics) -> str:
    excess = dict(event.constraints)
    over = [
        f"{name} is {number(bound + excess[name])}, allowed is at most {number(bound)}"
        for name, bound in bounds
        if excess.get(name, 0.0) > 0
    ]
    if over:
        return f"it violates a constraint, so it was not trained: {'; '.join(over)}"
    values = [] if event.value is None else [event.value, *event.further]
    text = f"the objective returned {', '.join(map(number, values)) or 'without a value'}"
    text = "the objective pruned it" if event.pruned else text
    addition = f"; {event.left} of the processes that it started run until its trainer ends"
    return text + (addition if event.left else "")
