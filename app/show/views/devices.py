"""Show the devices for ``penstock devices``, and wait until devices are free."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ....base.errors import BackendError, UsageError
from ....profiling.devices.device import slot_name
from ...common.console import PlainConsole
from ...common.text import duration

if TYPE_CHECKING:
    from ....scheduler.state.state import DeviceRecord
    from ...ledger.reader import Reader
    from ...ledger.rows import Work

Facts = dict[str, Any]

#: The number of seconds after a deadline within which the scheduler must have revoked all segments
#: that still run.
GRACE = 15.0
#: The number of seconds between two polls of the ledger.
_POLL_INTERVAL = 0.1
#: The number of seconds for which a device is listed after it left.
SHOWN_AFTER = 86_400.0
#: The number of spaces between two columns of the table.
GAP = 3
#: The states of a device that is not available.
GONE = ("left", "held")
_STYLES = {"joined": "green", "left": "dim", "held": "dim"}


def device_facts(reader: Reader, *, served: bool) -> list[Facts]:
    """Return the facts about every device that ever joined, sorted by name.

    The facts contain the trials that run on the device. Times are in seconds since 1970. ``served``
    is True if a scheduler runs. If no scheduler runs, the states in the ledger are out of date, and
    all devices count as gone since an unknown time.
    """
    works = reader.running() if served else {}
    devices = [_facts(record, works) for record in reader.devices()]
    for facts in devices if not served else ():
        if facts["state"] not in GONE:
            facts |= {
                "state": "left",
                "since": None,
                "reason": "no scheduler runs: penstock up",
            }
    return devices


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
        "seats": device.seats,
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
    """Return the devices as a table with one row each. Devices that are gone come last.

    Devices that left more than ``SHOWN_AFTER`` seconds ago are only counted. On a narrow terminal
    the least important columns are left out.
    """
    if not devices:
        return Text(
            "there is no device yet: start workers with `penstock up` or `penstock worker`", "dim"
        )
    now = time.time()
    listed = shown_devices(devices, now)
    table = _Fitting({title: [cell(facts, now) for facts in listed] for title, cell in COLUMNS})
    forgotten = len(devices) - len(listed)
    words = f"and {forgotten} that left more than a day ago: --json has them"
    return Group(*([table] if listed else []), *([Text(words, "dim")] if forgotten else []))


def shown_devices(devices: Sequence[Facts], now: float) -> list[Facts]:
    """Return the present devices, followed by the devices that are gone.

    A device that left more than ``SHOWN_AFTER`` seconds ago is left out.
    """
    recent = [facts for facts in devices if not _left_long_ago(facts, now)]
    return sorted(recent, key=lambda facts: facts["state"] in GONE)


def _left_long_ago(facts: Facts, now: float) -> bool:
    since = facts["since"]
    return facts["state"] == "left" and since is not None and now - since > SHOWN_AFTER


class _Fitting:
    """A table with as many of the columns in ``cells`` as fit the terminal."""

    def __init__(self, cells: dict[str, list[Text]]) -> None:
        self._cells = cells

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titles = list(self._cells)
        for title in _DISPENSABLE:
            if self._width(titles) <= options.max_width:
                break
            titles.remove(title)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
        for title in titles:
            # Only the last column may wrap, and only if it has to.
            justify: Literal["left", "right"] = "right" if title in NUMBERS else "left"
            table.add_column(title, justify=justify, no_wrap=title != "runs", overflow="fold")
        for row in zip(*(self._cells[title] for title in titles), strict=True):
            table.add_row(*row)
        yield table

    def _width(self, titles: list[str]) -> int:
        widths = (
            max(cell_len(line) for line in (title, *_lines(self._cells[title]))) for title in titles
        )
        return sum(widths) + GAP * (len(titles) - 1)


def _lines(cells: list[Text]) -> Iterator[str]:
    for cell in cells:
        yield from cell.plain.splitlines()


def _memory(facts: Facts, _: float) -> Text:
    memory = facts["memory"]
    return Text("" if memory is None else f"{memory / 2**30:.1f} GiB")


def _state(facts: Facts, now: float) -> Text:
    state = str(facts["state"])
    text = Text(state, style=_STYLES.get(state, "yellow"))
    if state != "joined" and facts["since"] is not None:
        text.append(f" {duration(max(0.0, now - facts['since']))}", style="dim")
    return text


def _runs(facts: Facts, now: float) -> Text:
    """Return the work on the device, and the reason for the device's state if there is a reason."""
    text = Text("\n".join(_work(facts, work, now) for work in facts["running"]))
    if facts["reason"]:
        text.append(f"{chr(10) if text else ''}({facts['reason']})", style="dim")
    return text


#: The columns of the table. Each column has a title and a function that returns the cell of a
#: device, given the device's facts and the present time (seconds since 1970).
COLUMNS: tuple[tuple[str, Callable[[Facts, float], Text]], ...] = (
    ("device", lambda facts, _: Text(facts["name"], style="bold")),
    ("node", lambda facts, _: Text(facts["node"])),
    ("kind", lambda facts, _: Text(facts["kind"])),
    ("model", lambda facts, _: Text(facts["model"])),
    ("cores", lambda facts, _: Text(str(len(facts["cores"])))),
    ("memory", _memory),
    ("slots", lambda facts, _: Text(_slots(facts))),
    ("state", _state),
    ("runs", _runs),
)
#: The titles of the columns that hold numbers.
NUMBERS = {"cores", "memory", "slots"}
#: The titles of the columns that a narrow terminal leaves out, in this order. The node and the kind
#: of a device are also part of the device's name.
_DISPENSABLE = ("model", "node", "kind", "memory", "cores", "slots")


def _slots(facts: Facts) -> str:
    """Return the number of slots. For a device with lanes, return lanes and seats: *2 x 4*.

    A lane is a process that trains several trials in turn, one trial in each seat.
    """
    slots, seats = facts["slots"], facts["seats"]
    return str(slots) if seats == 1 else f"{slots // seats} x {seats}"


def _work(facts: Facts, work: Facts, now: float) -> str:
    label = f"{work['study']}/{work['trial']} epoch {work['epoch']}"
    if facts["seats"] > 1:
        # The row begins with the device's name: its */5* is *cpu.n.0/5* elsewhere.
        slot = slot_name("", work["slot"], ("",))
        label = f"{slot} in lane {work['slot'] // facts['seats']}: {label}"
    return label if work["since"] is None else f"{label}, {duration(max(0.0, now - work['since']))}"


def wait_free(
    reader: Reader, names: Sequence[str], within: float, tell: Callable[[str], object]
) -> None:
    """Wait until no trial runs on the devices ``names``.

    ``within`` is the number of seconds until the deadline. ``GRACE`` seconds after the deadline,
    the wait is given up. ``tell`` is called with the name of each device that becomes free.
    Standard error shows the names of devices that are not free yet. Raises UsageError if a device
    is given back during the wait, and BackendError if the wait is given up.
    """
    end, waiting = time.monotonic() + within, list(names)
    console = PlainConsole(stderr=True, highlight=False)
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
            remaining = end - time.monotonic()
            if not waiting:
                return
            if remaining < -GRACE:
                raise BackendError(
                    f"{', '.join(waiting)}: not free {duration(GRACE)} after the deadline:"
                    " `penstock doctor` looks for the reason"
                )
            line.update(f"waiting for {', '.join(waiting)}, {duration(max(0.0, remaining))} left")
            time.sleep(_POLL_INTERVAL)
