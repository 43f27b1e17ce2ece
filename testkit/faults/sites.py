"""Installations for runs under fault, and the outcomes of their studies.

``Site`` is one node that trains each trial on one device. In a ``LaneSite`` trials of several
studies take turns in one process; in a ``PrefixSite`` they take over each other's epochs; in a
``ReadingSite`` two trainers share what they read. ``Nodes`` is two nodes on this machine, with
devices, workers and a state folder each and one broker, ledger and store between them: its trials
run on gangs of one to four devices, another number after each epoch. The second node reaches the
broker through a ``Crossing``, where single processes can be cut off from it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import BackendError, FullBudget, SuccessiveHalving, TorchTrainable
from penstock.app.client.study.handle import StudyHandle
from penstock.app.client.study.study import Study
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import EpochRow
from penstock.app.server.services import services
from penstock.app.server.services.supervisor import Supervisor
from penstock.app.spec.build import make_plan, new_id
from penstock.app.spec.options import Resources
from penstock.app.spec.plan import StudyPlan
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import StrategySpec

from ..digits import SCHEDULES, SPACE, DigitsNet, PacedNet, PacedSteppedNet, SteppedNet
from ..postgres import Server
from ..random_widths import RANDOM_WIDTHS
from ..shared_reading import ReadThrice
from .crossing import Crossing

#: Seconds between two looks at the ledger.
LOOK = 0.02
TRIALS, MIN_EPOCHS, MAX_EPOCHS = 12, 2, 18
#: The epochs after which trials of a successive halving wait for each other.
RUNGS = frozenset({MIN_EPOCHS, 3 * MIN_EPOCHS})
#: The studies of gangs: shards, and trials and epochs where each trial has the full budget.
SHARDS, FULL_TRIALS, FULL_EPOCHS = 4, 4, 6
#: Bytes of the disk that the store of two nodes is on, where one can be made for it.
DISK = 4 << 30


class Stuck(Exception):
    """The installation did not recover; the text says what was waited for."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a study: the bits by (trial number, epoch), and how many counted twice."""

    bits: dict[tuple[int, int], object]
    doubled: int


class Site:
    """One installation with a state folder of its own."""

    #: Seconds without an accepted epoch, or without anything to hit, after which it is a failure.
    #: It is no statement about speed: also a busy machine must not fail by it.
    patience = 600.0
    #: Number of studies that are submitted at a time.
    beside = 1

    def __init__(
        self, home: Path, *, server: Server | None = None, paced: bool = False, **given: Any
    ) -> None:
        """``given``: settings that differ from those of the plain studies.

        ``server``: its ledger is a database of this PostgreSQL server, made for it.
        ``paced``: epochs take a quarter of a second and more, and have the same bits.
        """
        self.paced = paced
        self.server = server
        if server is not None:
            given["ledger"] = server.create("ledger")
        plain = {"devices": f"cpu:{min(2, len(os.sched_getaffinity(0)))}x1"}
        quick = {"lease_ms": 1500, "claim_timeout": 3.0}
        self.settings = Settings(home=home, **quick | plain | given)
        self.reader = Reader(self.settings.ledger_url)
        self.studies: list[str] = []

    def start(self, undo: ExitStack) -> None:
        """Start what the first study needs; ``undo`` ends what does not belong to Penstock."""

    def submit(self, seed: int) -> None:
        """Have the next study run: the same one for the same seed, wherever it runs."""
        halving = SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS)
        self._submit(plan_of(seed, halving), TRIALS, PacedNet if self.paced else DigitsNet)

    def _submit(
        self,
        plan: StudyPlan,
        n_trials: int,
        code: type[TorchTrainable] = DigitsNet,
        space: Mapping[str, Any] = SPACE,
    ) -> None:
        name = f"chaos-{plan.seed}"
        study = Study(StudyHandle(plan, name, new_id(name), self.settings))
        study.submit(code, space, n_trials, devices=self.settings.devices)
        self.studies.append(study.id)

    def over(self) -> bool:
        return self.reader.study(self.studies[-1]).finished_at is not None

    def wait(self) -> None:
        """Until the last study is over. Raises Stuck when its epochs stop coming."""
        while not self.over():
            after = self.last_row()
            self.until(lambda a=after: self.over() or self.last_row() > a, "an epoch")

    def epochs(self) -> list[EpochRow]:
        return [row for study in self.studies for row in self.reader.epochs(study)]

    def company(self, name: str) -> dict[int, int]:
        """Return numbers of epochs by their ``together`` or ``readers``, as ``name`` says."""
        found = Counter[int]()
        for study in self.studies:
            events = self.reader.of_trials(study, EpochReported)
            found.update(getattr(event, name) for _, event in events)
        return dict(sorted(found.items()))

    def last_row(self) -> int:
        """The rowid of the last study's newest accepted epoch; 0 where there is none."""
        rows = self.reader.epochs(self.studies[-1])
        return rows[-1].rowid if rows else 0

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Return the first true value of ``holds``. Raises Stuck after ``patience`` seconds."""
        deadline = time.monotonic() + self.patience
        while not (found := holds()):
            if time.monotonic() > deadline:
                where = self.settings.logs
                raise Stuck(f"{what} did not come in {self.patience:g} s; logs: {where}")
            time.sleep(LOOK)
        return found

    def all_up(self) -> bool:
        return all(status.pid is not None for status in services.statuses(self.settings))

    def take_down(self, *, grace: float = services.AGENT_GRACE) -> None:
        services.take_down(self.settings, grace=grace)

    def outcome(self, study: str) -> Outcome:
        """The study's table of results, and what its events say of epochs counted twice."""
        bits: dict[tuple[int, int], object] = {}
        doubled = 0
        trials = {trial.id: trial for trial in self.reader.trials(study)}
        fences = dict.fromkeys(trials, 0)
        for row in self.reader.epochs(study):
            trial = trials[row.trial]
            place = (trial.number, row.epoch)
            doubled += place in bits
            if not row.taken_from:  # else no attempt of its own was at work
                doubled += row.fence < fences[row.trial]
                fences[row.trial] = row.fence
            bits[place] = (trial.params, row.state_hash, row.metrics, row.signature)
        for trial in trials:
            events = [event for _, event in self.reader.events(trial)]
            seen = Counter(event.epoch for event in events if isinstance(event, EpochReported))
            doubled += sum(seen.values()) - len(seen)
        return Outcome(bits, doubled)


class LaneSite(Site):
    """An installation whose trials take turns: three studies run at the same time."""

    beside = 3

    def __init__(self, home: Path, **given: Any) -> None:
        super().__init__(home, **{"devices": "cpu:2x1*1x3"} | given)

    def submit(self, seed: int) -> None:
        for i in range(self.beside):
            super().submit(self.beside * seed + i)

    def over(self) -> bool:
        latest = self.studies[-self.beside :]
        return all(self.reader.study(each).finished_at is not None for each in latest)

    def last_row(self) -> int:
        return max((row.rowid for row in self.epochs()), default=0)


class FusedSite(Site):
    """An installation whose trials are trained together, in two lanes."""

    def __init__(self, home: Path, **given: Any) -> None:
        super().__init__(home, **{"devices": "cpu:2x1*1x6"} | given)

    def submit(self, seed: int) -> None:
        halving = SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS)
        self._submit(plan_of(seed, halving), 2 * TRIALS, space=SPACE | {"hidden": [48]})


class PrefixSite(Site):
    """An installation whose trials have epochs in common. ``alone``: each trains them itself."""

    def __init__(self, home: Path, *, alone: bool = False, **given: Any) -> None:
        super().__init__(home, **given)
        self._alone = alone

    def submit(self, seed: int) -> None:
        halving = SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS)
        plan = make_plan(
            direction="maximize",
            metric="accuracy",
            sampler="grid",
            strategy=halving,
            seed=seed,
            seeding="shared",
            # Where machines may differ, nothing is taken over.
            resources=Resources(on_signature_change="record" if self._alone else "refuse"),
        )
        self._submit(plan, TRIALS, PacedSteppedNet if self.paced else SteppedNet, SCHEDULES)


class ReadingSite(Site):
    """An installation whose trials read the same batches, which Python code prepares."""

    def submit(self, seed: int) -> None:
        halving = SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS)
        plan = make_plan(
            direction="maximize",
            metric="accuracy",
            sampler="random",
            strategy=halving,
            seed=seed,
            seeding="shared",
        )
        self._submit(plan, TRIALS, ReadThrice, {"lr": SPACE["lr"]})


class GangSite(Site):
    """An installation whose trials may be as wide as it has devices: one node of them here.

    With one device, which it has by default, no trial is wider than one, and two run side by side.
    """

    def __init__(self, home: Path, **given: Any) -> None:
        super().__init__(home, **{"devices": "cpu:1x2*2"} | given)

    def submit(self, seed: int) -> None:
        if seed % 2:
            self._submit(plan_of(seed, FullBudget(FULL_EPOCHS), shards=SHARDS), FULL_TRIALS)
        else:
            halving = SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS)
            self._submit(plan_of(seed, halving, shards=SHARDS), TRIALS)


class Nodes(GangSite):
    """Two nodes of two devices each, and a store on a disk of its own where one can be made."""

    def __init__(self, folder: Path) -> None:
        store = {"store": f"file://{folder / 'disk' / 'checkpoints'}"}
        devices = f"cpu:{min(2, len(os.sched_getaffinity(0)))}x1"
        plain = {"devices": devices, "policy": RANDOM_WIDTHS}
        super().__init__(folder / "a", node="a", **plain, **store)
        crossing = folder / "b.sock"
        url = f"redis+socket://{crossing}"
        lease = self.settings.lease_ms
        self.second = Settings(
            home=folder / "b", node="b", broker=url, devices=devices, lease_ms=lease, **store
        )
        self.crossing = Crossing(crossing, self.settings.run / "broker.sock")
        #: Mount point of the store's disk; None if this user may not mount.
        self.disk: Path | None = None

    def start(self, undo: ExitStack) -> None:
        disk = self.settings.home.with_name("disk")
        if _mount(disk, undo):
            self.disk = disk
        services.ensure_up(self.settings)
        self.crossing.start()
        start_agent(self.second, undo)
        self.until(lambda: joined(self.reader) == {"a", "b"}, "a node")

    @property
    def nodes(self) -> dict[str, Settings]:
        """The settings of each node, by its name."""
        return {"a": self.settings, "b": self.second}

    def all_up(self) -> bool:
        return super().all_up() and locks.is_running(self.second.run, "agent")

    def take_down(self, *, grace: float = services.AGENT_GRACE) -> None:
        services.take_down(self.second, grace=grace)
        super().take_down(grace=grace)


def start_agent(node: Settings, undo: ExitStack) -> None:
    """Start the agent of a node that only trains; ``undo`` stops it."""
    services.ensure_up(node, services=(services.agent_of(node.devices),))
    # The operating system's own supervisor would revive the agent there.
    undo.enter_context(Supervisor(node))


def joined(reader: Reader) -> set[str]:
    """The nodes that have joined so far."""
    with suppress(BackendError):  # no ledger yet
        return {found.device.node for found in reader.devices()}
    return set()


@contextmanager
def site(make: Callable[[Path], Site]) -> Iterator[Site]:
    """An installation, taken down afterwards; its folder stays when something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    found = make(folder)
    with ExitStack() as undo:
        try:
            found.start(undo)
            yield found
        except BaseException:
            found.take_down(grace=2.0)
            raise
        found.take_down()
    shutil.rmtree(folder)


def compare(disturbed: Site, undisturbed: Site) -> dict[str, int]:
    """Epochs in all, and those that are missing, counted twice or different."""
    sums = Counter(epochs=0, lost=0, doubled=0, wrong=0)
    for one, other in zip(disturbed.studies, undisturbed.studies, strict=True):
        found, expected = disturbed.outcome(one), undisturbed.outcome(other)
        sums["epochs"] += len(found.bits)
        sums["lost"] += len(expected.bits.keys() - found.bits.keys())
        sums["doubled"] += found.doubled
        sums["wrong"] += sum(expected.bits.get(place) != b for place, b in found.bits.items())
    return dict(sums)


def plan_of(seed: int, strategy: StrategySpec, shards: int | None = None) -> StudyPlan:
    """Return the plan of a study on the digits."""
    return make_plan(
        direction="maximize",
        metric="accuracy",
        sampler="random",
        strategy=strategy,
        seed=seed,
        resources=Resources(shards=shards),
    )


def _mount(disk: Path, undo: ExitStack) -> bool:
    """Make ``disk`` a disk of its own, if this user may."""
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(words, check=False).returncode:
        return False
    undo.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
    return True
