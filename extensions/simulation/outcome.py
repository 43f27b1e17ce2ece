"""The results of a simulated workload under each policy, as plain values.

``extensions.simulation.experiment`` computes the results. Tables, pages and charts show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...app.common.text import count
from ...app.show.views.delays import Completion, Delays
from ...profiling.devices.device import Device
from ...scheduler.model.trial import AcceptedEpoch
from .workload import Workload


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """The result of a workload under one policy. All times are simulated seconds."""

    policy: str
    #: The time at which the last study ended.
    makespan: float
    #: A lower bound of the makespan of any plan that trains the same epochs.
    bound: float
    #: The fraction (0 to 1) of the devices' time in which they trained, from 0 to the makespan.
    utilisation: float
    #: Mean delays of the trials: time until the first step, time spent waiting, time until
    #: completion.
    delays: Delays
    #: The mean time from a study's arrival to its last epoch.
    response: float
    #: Number of resizes: a trial continued on another number of devices than before.
    resizes: int
    #: All accepted epochs, in order.
    epochs: tuple[AcceptedEpoch, ...]
    #: Number of attempts that ran out of memory because other trials were on the device.
    out_of_memory: int = 0
    #: The fraction (0 to 1) of the devices' memory that running trials needed, from 0 to the
    #: makespan. It is None if a device has no memory limit.
    memory: float | None = None
    #: The reasons, one for each time that the policy failed and gave no plan.
    planless: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """The makespan divided by the lower bound, which is at least 1.0 for every policy."""
        return self.makespan / self.bound

    @property
    def ended(self) -> Completion:
        """The completion times of the trials. All trials are over at the end of a simulation."""
        assert self.delays.completion is not None
        return self.delays.completion

    @property
    def completion(self) -> float:
        """The mean time from a study's arrival to the last epoch of each of its trials."""
        return self.ended.mean


@dataclass(frozen=True, slots=True)
class Simulation:
    """A workload, the simulated devices, and the result under each policy.

    ``known`` is True if policies knew the speed curves from the start.
    """

    workload: Workload
    devices: tuple[Device, ...]
    outcomes: tuple[ExperimentResult, ...]
    known: bool

    def facts(self) -> dict[str, Any]:
        """Return the figures of the simulation as plain values, for JSON."""
        return {
            "simulated": True,
            "workload": self.workload.name,
            "about": self.workload.about,
            "studies": len(self.workload.studies),
            "trials": sum(len(study.trials) for study in self.workload.studies),
            "devices": len(self.devices),
            "resize_s": self.workload.resize,
            "overhead_s": self.workload.overhead,
            "curves_known": self.known,
            "assumed": list(self.notes()),
            "policies": {
                each.policy: {
                    "makespan_s": each.makespan,
                    "bound_s": each.bound,
                    "ratio": each.ratio,
                    "utilisation": each.utilisation,
                    "mean_start_delay_s": each.delays.start,
                    "mean_waiting_s": each.delays.waiting,
                    "mean_completion_s": each.completion,
                    "completion_p50_s": each.ended.median,
                    "completion_p95_s": each.ended.p95,
                    "mean_response_s": each.response,
                    "mean_slowdown": each.ended.slowdown,
                    "epochs": len(each.epochs),
                    "resizes": each.resizes,
                    "out_of_memory": each.out_of_memory,
                    "memory": each.memory,
                }
                for each in self.outcomes
            },
        }

    def notes(self) -> tuple[str, ...]:
        """Return sentences on assumptions and failures that a reader of the figures has to know."""
        failed = [
            f"{each.policy} gave no plan {count(len(each.planless), 'time')}, and the previous"
            f" plan stayed in force: it {each.planless[-1]}"
            for each in self.outcomes
            if each.planless
        ]
        shared = []
        if max(device.lanes for device in self.devices) > 1 and not self.workload.sharing:
            shared.append("trials that share a device gain nothing: two of them take twice as long")
        return (*self.workload.assumed, *self.uneven(), *shared, *self.unseen(), *failed)

    def uneven(self) -> tuple[str, ...]:
        """Return a note if the tuner stopped different trials under different policies.

        In this case the policies have trained different numbers of epochs, and so have different
        bounds.
        """
        epochs = [len(each.epochs) for each in self.outcomes]
        if min(epochs) == max(epochs):
            return ()
        note = (
            f"the tuner stopped different trials under each policy: {min(epochs)} to {max(epochs)}"
        )
        return (f"{note} epochs. Each policy has a bound of its own, so compare makespans",)

    def unseen(self) -> tuple[str, ...]:
        """Return a note for each policy under which epochs ran that were never recorded.

        The result is empty if no trial of the workload has recorded times.
        """
        work = self.workload
        if not any(trial.levels for study in work.studies for trial in study.trials):
            return ()
        notes = []
        for each in self.outcomes:
            new = sum(
                row.epoch > len(work.trial(row.trial.rpartition("-")[0], row.trial).levels)
                for row in each.epochs
            )
            if new:
                notes.append(
                    f"under {each.policy} {new} of {len(each.epochs)} epochs were not recorded:"
                    " each takes its trial's mean, and has its last value"
                )
        return tuple(notes)
