"""Studies side by side on simulated devices: who has how much of them."""

from __future__ import annotations

import pytest
from penstock.extensions.simulation.simulator import simulate
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import StrategySpec, StudySpec
from penstock.scheduler.policies import names
from worlds.drive_world import spec

#: The policies under which each study has a share.
POLICIES = tuple(sorted(set(names.POLICIES) - names.CROSS_STUDY))


class Hours:
    """Epochs that take what is said of their study, shared evenly by the devices."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self.widths: dict[str, int] = {}

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        width = len(dispatch.segment.members)
        self.widths[f"{dispatch.segment.trial}@{epoch}"] = width
        return self._seconds[spec.id] / width, float(dispatch.number)

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        return 0.1

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        return 200

    def slowdown(self, at_work: int) -> float:
        """Devices have one slot."""
        return 1.0


def study(name: str, **fields) -> StudySpec:
    number = '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}'  # noqa: E501 - as Optuna writes it
    plan = StrategySpec("full", max_epochs=fields.pop("epochs", 4))
    return spec(plan, **{"id": name, "name": name, "space": (("x", number),), **fields})


def run(policy: str, devices: int, studies: list[StudySpec], seconds: dict[str, float]):
    """When each study's last epoch ended, and the device-seconds that it had before a time."""
    places = [Device(f"d{k}", "n", "cpu", (k,), None) for k in range(devices)]
    work = Hours(seconds)
    done = simulate(studies, places, work, policy=policy)
    epochs = [event for event in done.trace if isinstance(event, EpochReported)]
    ends = {of(event): event.at for event in epochs}

    def had(name: str, until: float) -> float:
        return sum(
            max(0.0, min(e.at, until) - e.at + e.seconds) * work.widths[f"{e.trial}@{e.epoch}"]
            for e in epochs
            if of(e) == name
        )

    return ends, had


def of(event: EpochReported) -> str:
    return event.trial.rpartition("-")[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("devices", [1, 4])
def test_weights_of_two_to_one_give_device_seconds_of_two_to_one(policy, devices):
    studies = [study("a", n_trials=24, weight=2.0), study("b", n_trials=24)]
    ends, had = run(policy, devices, studies, {"a": 10.0, "b": 7.0})
    until = min(ends.values()) * 0.9
    assert had("a", until) / had("b", until) == pytest.approx(2.0, rel=0.15)
    both = had("a", until) + had("b", until)
    assert both == pytest.approx(devices * until, rel=0.02), "a device was idle"


@pytest.mark.parametrize("policy", ["fair", "longest_first", "waterfill"])
def test_weights_hold_for_trials_on_several_devices(policy):
    """Fluid's two do not: they take no device from a trial that loses speed by it."""
    wide = {"n_trials": 2, "max_width": 8, "shards": 8, "epochs": 30}
    studies = [study("a", weight=2.0, **wide), study("b", **wide)]
    ends, had = run(policy, 6, studies, {"a": 20.0, "b": 20.0})
    until = min(ends.values()) * 0.9
    assert had("a", until) / had("b", until) == pytest.approx(2.0, rel=0.2)
    assert had("a", until) + had("b", until) >= 6 * until * 0.9


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lower_priority_gets_nothing_but_what_the_higher_leaves(policy):
    studies = [study("low", n_trials=8), study("high", n_trials=8, priority=1, weight=0.1)]
    ends, had = run(policy, 2, studies, {"low": 5.0, "high": 5.0})
    # The first study had begun when the second was submitted: one epoch of each device.
    assert ends["high"] == pytest.approx(8 * 4 * 5.0 / 2, rel=0.1)
    assert had("low", ends["high"] - 20.0) <= 2 * 5.0
    assert ends["low"] == pytest.approx(2 * ends["high"], rel=0.15)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_study_that_needs_less_gives_the_rest_to_the_others(policy):
    studies = [study("one", n_trials=1, weight=9.0, epochs=40), study("many", n_trials=60)]
    ends, had = run(policy, 4, studies, {"one": 5.0, "many": 5.0})
    until = min(ends.values()) * 0.9
    assert had("one", until) == pytest.approx(until, rel=0.02)
    assert had("many", until) == pytest.approx(3 * until, rel=0.02)
