"""What ``penstock devices`` shows, and how it waits for devices to be free."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..profiling.errors import BackendError, UsageError
from .standing import duration

if TYPE_CHECKING:
    from ..scheduler.state import DeviceRecord
    from .queries import Reader, Work

Facts = dict[str, Any]

#: Seconds after the deadline in which the scheduler must have revoked what still runs.
GRACE = 15.0
#: Seconds between two looks at the ledger.
_LOOK_AGAIN = 0.1
_STYLES = {"joined": "green", "left": "dim", "held": "dim"}


def device_facts(reader: Reader) -> list[Facts]:
    """Every device that ever joined, by name, and what runs there. Times are seconds since 1970."""
    works = reader.running()
    return [_facts(record, works) for record in reader.devices()]


def _facts(record: DeviceRecord, works: dict[tuple[str, int], Work]) -> Facts:
    device = record.device
    return {
        "name": device.name,
        "node": device.node,
        "kind": device.kind,
        "model": device.model,
        "cores": list(device.cores),
        "memory": device.memory,
        "slots": device.slots,
        "state": record.state,
        "since": record.at,
        "reason": record.reason,
        "running": [
            {
                "slot": slot,
                "study": work.study,
                "trial": work.number,
                "epoch": work.epoch,
                "since": work.since,
            }
            for slot in range(device.slots)
            if (work := works.get((device.name, slot))) is not None
        ],
    }


def device_table(devices: list[Facts]) -> RenderableType:
    """The devices, a line each: those that are gone last."""
    if not devices:
        return Text("no device is here yet: penstock up, or penstock worker, joins some", "dim")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("device", no_wrap=True)
    for title in ("node", "kind", "cores", "memory", "slots"):
        number = title in {"cores", "memory", "slots"}
        table.add_column(title, justify="right" if number else "left", no_wrap=number)
    table.add_column("state")
    table.add_column("runs")
    now = time.time()
    for facts in sorted(devices, key=lambda facts: facts["state"] in {"left", "held"}):
        memory = facts["memory"]
        table.add_row(
            Text(facts["name"], style="bold"),
            facts["node"],
            " ".join(filter(None, (facts["kind"], facts["model"]))),
            str(len(facts["cores"])),
            "" if memory is None else f"{memory / 2**30:.1f} GiB",
            str(facts["slots"]),
            _state(facts, now),
            Text("\n".join(_work(work, now) for work in facts["running"])),
        )
    return table


def _state(facts: Facts, now: float) -> Text:
    state = str(facts["state"])
    text = Text(state, style=_STYLES.get(state, "yellow"))
    if state != "joined":
        text.append(f" {duration(max(0.0, now - facts['since']))}", style="dim")
    if facts["reason"]:
        text.append(f" ({facts['reason']})", style="dim")
    return text


def _work(work: Facts, now: float) -> str:
    said = f"{work['study']}/{work['trial']} epoch {work['epoch']}"
    return said if work["since"] is None else f"{said}, {duration(max(0.0, now - work['since']))}"


def wait_free(
    reader: Reader, names: Sequence[str], within: float, tell: Callable[[str], object]
) -> None:
    """Wait until nothing runs on ``names``, which were taken out with a deadline in ``within`` s.

    ``tell`` hears of each as it becomes free; standard error shows for whom is waited. Raises
    UsageError when one is given back meanwhile, BackendError when the deadline passes in vain.
    """
    end, waiting = time.monotonic() + within, list(names)
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(f"waiting for {', '.join(waiting)}", soft_wrap=True)
    with console.status("") as line:
        while True:
            states = {record.device.name: record.state for record in reader.devices()}
            for name in [name for name in waiting if states[name] != "draining"]:
                if states[name] in {"joined", "resting"}:
                    raise UsageError(f"{name} was given back before it was free")
                waiting.remove(name)
                tell(name)
            left = end - time.monotonic()
            if not waiting:
                return
            if left < -GRACE:
                raise BackendError(
                    f"{', '.join(waiting)}: not free {duration(GRACE)} after the deadline:"
                    " `penstock doctor` looks for the reason"
                )
            line.update(f"waiting for {', '.join(waiting)}, {duration(max(0.0, left))} left")
            time.sleep(_LOOK_AGAIN)
