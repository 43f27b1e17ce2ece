"""Mixed trials packed on one device by the engine, and trained there under a hard limit.

One study whose model is a hyperparameter: its trials are of all families, so they differ much. The
engine has seen ``HISTORY`` of them, estimated and measured. Then it fills one device with others of
which it has estimates. What it chose is trained at once, each trial in a process of its own, in a
control group whose limit is the device's memory. The process from which they are forked is in the
group, too. Pages of libraries that the machine held before are charged to no member of the group.
In a container they would be, so the limit is lower by them.

``oom``: how many processes the kernel ended. ``over_reserve``: by how much the needs of the chosen
trials exceed what their processes had, each alone; ``over_reserve.together``: what the group had,
where they share libraries. ``trials_over_max_times_n``: how many trials were chosen,
over how many fit if each is taken to be the largest that was seen, as before there were estimates.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock.app.extensions import PLUGS
from penstock.base.footprint import Footprint
from penstock.extensions.memory.events import FootprintReported
from penstock.extensions.memory.fit import RESERVE, need
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Ask, Decision, Dispatch
from penstock.scheduler.model.events import (
    DeviceJoined,
    DeviceLeft,
    EpochReported,
    Event,
    PolicyChosen,
    Proposed,
    StudySubmitted,
)
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec

from ..lib.memory_cases import RECURRENT, Case, Drawn
from .group import MemoryGroup, join

Figures = dict[str, Any]

HISTORY, NEWCOMERS, SLOTS = 12, 12, 8
#: The memory of the device (GiB): from one to eight of the trials.
LEAST_GIB, MOST_GIB = 0.6, 1.5
#: Seconds that the chosen trials train at least, so that all are at work at once.
SECONDS = 2.5


class _Packer:
    """The engine with one study, told what the benchmark has measured of each trial."""

    def __init__(self, cases: Sequence[Figures]) -> None:
        self._cases = cases
        self.engine = Engine(plugs=PLUGS)
        self._open: dict[int, Dispatch] = {}
        self._send(PolicyChosen(at=0.0, policy="pack", cross_study=True))
        self._join("history", None)
        study = StudySpec(
            id="s",
            name="s",
            contract="torch",
            code=Code("a:b", "", ""),
            metric="v",
            direction="minimize",
            n_trials=len(cases),
            space=(),
            sampler="random",
            strategy=StrategySpec("full", max_epochs=1),
        )
        self._send(StudySubmitted(at=0.0, study=study))

    def _join(self, name: str, memory: int | None) -> None:
        device = Device(name, "a", "cpu", (0,), memory, SLOTS)
        self._send(DeviceJoined(at=0.0, device=device, incarnation="i"))

    def _send(self, event: Event) -> None:
        for decision in self.engine.handle(event):
            self._carry_out(decision)
        self._open = {f: d for f, d in self._open.items() if f in self.engine.state.attempts}

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Dispatch):
            self._open[decision.segment.fence] = decision
        elif isinstance(decision, Ask):
            trials = tuple((("x", 0),) for _ in range(decision.n))
            self._send(
                Proposed(
                    at=0.0,
                    cause=decision.id,
                    study=decision.study,
                    index=decision.index,
                    trials=trials,
                    exhausted=False,
                )
            )

    def _tell(self, by: Dispatch, number: int, *, measured: bool) -> None:
        case = self._cases[number]
        peak = case["second_step" if measured else "trace"]
        self._send(
            FootprintReported(
                at=0.0,
                trial=by.segment.trial,
                fence=by.segment.fence,
                of=f"s-{number:04d}",
                footprint=Footprint(0, peak, peak),
                measured=measured,
                base=case["base"],
                recurrent=case["family"] in RECURRENT,
            )
        )

    def live_through(self, history: int) -> None:
        """The first ``history`` trials are estimated, measured, trained and over."""
        while seen := [d for d in self._open.values() if d.number < history]:
            for dispatch in seen:
                self._tell(dispatch, dispatch.number, measured=False)
                self._tell(dispatch, dispatch.number, measured=True)
                self._send(
                    EpochReported(
                        at=0.0,
                        cause=dispatch.id,
                        trial=dispatch.segment.trial,
                        fence=dispatch.segment.fence,
                        epoch=1,
                        metrics=(("v", 0.0),),
                        state_hash="h",
                        signature="s",
                        seconds=1.0,
                        closes=True,
                        holder="h",
                        memory=self._cases[dispatch.number]["process"],
                    )
                )

    def choose(self, memory: int) -> list[int]:
        """Return the numbers of the trials that the engine puts on a device of ``memory`` bytes."""
        reporter = next(iter(self._open.values()))
        for number in range(HISTORY, len(self._cases)):
            self._tell(reporter, number, measured=False)
        self._join("device", memory)
        self._send(DeviceLeft(at=0.0, device="history", reason="it is full"))
        return [dispatch.number for dispatch in self._open.values()]

    def need(self, number: int) -> int:
        """Return the engine's estimate of a trial's memory in bytes."""
        state = self.engine.state
        return need(state, state.trials[f"s-{number:04d}"], "cpu").size


def packing(found: Sequence[Figures], fits: int, seed: str) -> Figures:
    """The figures of ``fits`` devices, each filled from the cases ``found``."""
    known = [each for each in found if "failed" not in each]
    draw = random.Random(seed)
    chosen = by_max = ended = 0
    over, together, used = [], [], []
    arena = _Arena.open()
    for _ in range(fits):
        cases = draw.sample(known, HISTORY + NEWCOMERS)
        memory = round(draw.uniform(LEAST_GIB, MOST_GIB) * 2**30)
        packer = _Packer(cases)
        packer.live_through(HISTORY)
        numbers = packer.choose(memory)
        largest = max(each["process"] for each in cases[:HISTORY])
        chosen += len(numbers)
        by_max += min(SLOTS, max(1, int((1.0 - RESERVE) * memory // largest)))
        needs = sum(packer.need(n) for n in numbers)
        over.append(needs / sum(cases[n]["process"] for n in numbers) - 1)
        if arena is not None:
            lost, peak = arena.train([cases[n] for n in numbers], memory)
            ended += lost
            used.append(peak / memory)
            together.append(needs / peak - 1)
    if arena is not None:
        arena.close()
    return {
        "fits": fits,
        "oom": None if arena is None else ended,
        "limit_used.max": max(used, default=None),
        "over_reserve": fmean(over),
        "over_reserve.together": fmean(together) if together else None,
        "trials_over_max_times_n": chosen / by_max,
        "trials": chosen / fits,
        "trials.max_times_n": by_max / fits,
    }


class _Arena:
    """A process in a control group, which forks the trials of one fit after the other."""

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group
        command = [sys.executable, "-m", "benchmarks.memory.packing", str(group.path)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._libraries = int(self._answer())

    @classmethod
    def open(cls) -> _Arena | None:
        """An arena; None where control groups cannot be made, which is said."""
        try:
            return cls(MemoryGroup())
        except OSError as error:
            print(f"packing.oom is not measured: no control group: {error}", file=sys.stderr)
            return None

    def train(self, cases: Sequence[Figures], memory: int) -> tuple[int, float]:
        """Train the cases at once; how many were ended, and the most bytes that were used.

        Raises EOFError if the process itself was ended.
        """
        self._group.peak()
        self._group.limit(memory - self._libraries)
        assert self._process.stdin is not None
        asked = [(each["family"], each["params"]) for each in cases]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._answer()), self._group.peak() + self._libraries

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise EOFError(f"the process in {self._group.path} has ended")
        return answer

    def close(self) -> None:
        """End the process, and remove the group."""
        self._process.communicate()
        self._group.close()


def _train(case: Case, until: float) -> None:
    import torch
    from penstock.tasks.training import loop

    torch.set_num_threads(1)
    code = Drawn(case.params)
    run = loop.start(code, code.data(), 1, 0)
    for epoch in range(10**6):
        if epoch >= 2 and time.monotonic() >= until:
            return
        loop.run_epoch(run, lambda *_: None)


def _serve() -> None:
    """Train what each line of the standard input names; answer how many processes were killed.

    The first answer is how many bytes of files the process has mapped and touched.
    """
    import penstock.tasks.trainer.segment  # noqa: F401 - what a fork server has imported

    status = Path("/proc/self/status").read_text()
    print(int(status.partition("RssFile:")[2].split()[0]) << 10, flush=True)
    for line in sys.stdin:
        until, children = time.monotonic() + SECONDS, []
        for family, params in json.loads(line):
            child = os.fork()
            if not child:
                _train(Case(family, params), until)
                os._exit(0)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        wrong = [s for s in statuses if s and not os.WIFSIGNALED(s)]
        if wrong:
            raise RuntimeError(f"trials failed: {wrong}")
        print(sum(map(os.WIFSIGNALED, statuses)), flush=True)


if __name__ == "__main__":
    join(sys.argv[1])
    _serve()
