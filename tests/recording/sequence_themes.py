"""The corners of what can happen to an engine: kinds of studies and weights of actions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.app.spec.space import Categorical, Float, Int, parse_space
from penstock.scheduler.model.study import Objective, Observation, StrategySpec

PLANS = [
    StrategySpec("full", max_epochs=3),
    StrategySpec("full", max_epochs=20),
    StrategySpec("full"),
    StrategySpec("halving", max_epochs=4, eta=2),
    StrategySpec("halving", max_epochs=9),
    StrategySpec("asha", max_epochs=9),
    StrategySpec("asha", max_epochs=8, min_epochs=2, eta=2),
    StrategySpec("pasha", max_epochs=9, eta=2),
    StrategySpec("freeze_thaw", max_epochs=9),
    StrategySpec("hyperband", max_epochs=4, eta=2),
    StrategySpec("hyperband", max_epochs=9, overlap=False),
    StrategySpec("median", max_epochs=5),
    StrategySpec("curve", max_epochs=8, min_epochs=2),
]
PBT = [
    StrategySpec("pbt", max_epochs=5, min_epochs=2, quantile=0.5),
    StrategySpec("pbt", max_epochs=6, quantile=0.34),
    StrategySpec("pbt", max_epochs=12, min_epochs=3),
]
POLICIES = ["fifo", "longest_first", "static_fluid", "dynamic_fluid", "waterfill"]
PLUGIN = "user_code.users_policies:youngest_first"
AT_BEST = "finish_best"

#: Weights of the actions, if a theme gives no others.
WEIGHTS = {
    "train": 60.0,
    "train_oddly": 1.5,
    "tick": 3.0,
    "submit": 2.0,
    "join": 1.5,
    "drain": 0.4,
    "leave": 0.6,
    "take_out": 0.4,
    "give_back": 0.6,
    "lose": 1.0,
    "fail": 1.2,
    "end_early": 0.8,
    "durable": 6.0,
    "undurable": 0.4,
    "replayed": 0.4,
    "cancel": 0.15,
    "fail_study": 0.05,
    "pause": 0.4,
    "resume": 1.2,
    "weigh": 0.3,
    "extend": 0.7,
    "bring_in": 0.2,
    "enqueue": 0.8,
    "ask": 0.3,
    "tell": 0.3,
    "close": 0.1,
    "suggest": 0.3,
    "profile": 0.8,
    "measure": 0.8,
    "answer": 6.0,
    "answer_oddly": 0.2,
    "choose_policy": 0.3,
    "restore": 0.04,
}


@dataclass(frozen=True)
class Theme:
    """A corner of what can happen. ``study`` draws fields of a study by its number."""

    study: Callable[[random.Random, int], dict[str, Any]]
    weights: dict[str, float] = field(default_factory=dict)
    policies: tuple[str, ...] = ("fifo",)
    devices: int = 3
    slots: tuple[int, ...] = (1,)
    cores: int = 1
    studies: int = 4
    seconds: float = 0.5
    stretch: tuple[float, ...] = (1.0, 1.1, 1.3)
    #: Prices of a device-hour, by kind. Where there are any, devices have meters, too.
    prices: tuple[tuple[str, float], ...] = ()
    #: True if trials draw schedules that begin alike, and so have epochs in common.
    common: bool = False
    #: True if trials need memory that is estimated, and lanes may have several seats.
    memory: bool = False
    #: True if models make choices, and are counted before they are trained.
    models: bool = False
    #: The extensions that it needs: all sequences have profiles, also of studies not tuned.
    needs: tuple[str, ...] = ("system_tuning",)
    sequences: int = 12
    events: tuple[int, int] = (60, 220)


def any_study(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "strategy": rng.choice(PLANS),
        "n_trials": rng.randint(1, 9),
        "sampler": rng.choice(["random", "tpe"]),
        "retries": rng.randint(0, 2),
        "max_segment": rng.choice([1, 2, 64]),
        "keep_checkpoints": rng.choice([0, 1, 1, 3]),
        "contract": rng.choice(["torch", "torch", "empty", "objective", "epochs"]),
        "direction": rng.choice(["maximize", "minimize"]),
    }


def wide_study(rng: random.Random, number: int) -> dict[str, Any]:
    """Only what is trained for a number of epochs that is known may be wide."""
    fields = {
        "max_width": rng.choice([1, 2, 4, 4]),
        "shards": rng.choice([None, 4, 8]),
        "batch_size": 256,
        "contract": rng.choice(["torch", "torch", "empty"]),
        "strategy": rng.choice([plan for plan in PLANS if plan.max_epochs is not None]),
    }
    return any_study(rng, number) | fields


def widened_study(rng: random.Random, number: int) -> dict[str, Any]:
    """Few trials with long to go: they are measured at several widths."""
    fields = {
        "strategy": rng.choice([PLANS[1], PLANS[1], PLANS[4], PLANS[5]]),
        "n_trials": rng.randint(1, 4),
        "max_width": rng.choice([2, 4, 8]),
        "shards": 8,
    }
    return wide_study(rng, number) | fields


def narrow_study(rng: random.Random, number: int) -> dict[str, Any]:
    fields = {"n_trials": rng.randint(4, 12), "max_segment": 1, "contract": "torch"}
    return any_study(rng, number) | fields | {"strategy": StrategySpec("full", max_epochs=20)}


def sized_study(rng: random.Random, number: int) -> dict[str, Any]:
    fields = {
        "contract": rng.choice(["torch", "torch", "torch", "empty", "objective"]),
        "memory_limit": rng.choice([None] * 5 + [4 * 10**9]),
        "fuse": rng.choice(["auto", "auto", "off"]),
        "priority": rng.choice([0, 0, 0, 1]),
        "strategy": rng.choice([StrategySpec("full", max_epochs=20), PLANS[4], PLANS[5]]),
    }
    return narrow_study(rng, number) | fields


def tuned_study(rng: random.Random, number: int) -> dict[str, Any]:
    exactness = rng.choice(["bitwise", "statistical"])
    return {
        "strategy": rng.choice([StrategySpec("full", max_epochs=4), PLANS[5], PLANS[6]]),
        "n_trials": rng.choice([20, 60]),
        "contract": "torch",
        "system": rng.choice(["tune", "tune", "tune", "reuse"]),
        "probing": rng.choice(["race", "race", "bandit", "bayesian", "grid"]),
        "exactness": exactness,
        "on_signature_change": "record" if exactness == "statistical" else "refuse",
        "energy_weight": rng.choice([0.0, 0.0, 0.0, 0.5, 1.0]),
        "max_segment": rng.choice([1, 4]),
        "retries": rng.randint(0, 1),
        "knobs": rng.choice([None, None, ("threads", "loader_workers")]),
    }


def choosing_study(rng: random.Random, number: int) -> dict[str, Any]:
    fields = {
        "contract": rng.choice(["torch", "torch", "torch", "objective"]),
        "n_trials": rng.choice([12, 24]),
        "space": parse_space(
            {
                "depth": Int(1, 4),
                "op": Categorical(["mlp", "conv", "none"]),
                "lr": Float(0.01, 1.0, log=True),
            }
        ),
        "keep_checkpoints": 1,
        "max_width": rng.choice([1, 1, 1, 2]),
        "shards": 4,
    }
    return sized_study(rng, number) | tuned_study(rng, number) | fields


def forking_study(rng: random.Random, number: int) -> dict[str, Any]:
    fields = {"strategy": rng.choice(PBT), "contract": rng.choice(["torch", "torch", "empty"])}
    return any_study(rng, number) | fields | {"n_trials": rng.randint(3, 8), "seed": number}


def rival_study(rng: random.Random, number: int) -> dict[str, Any]:
    fields = {"weight": rng.choice([0.5, 1.0, 1.0, 3.0]), "priority": rng.choice([0, 0, 0, 1, -1])}
    return wide_study(rng, number) | fields


def asked_study(rng: random.Random, number: int) -> dict[str, Any]:
    contract = rng.choice(["ask", "ask", "ask", "torch"])
    return any_study(rng, number) | {"contract": contract, "sampler": rng.choice(["tpe", "grid"])}


def checked_study(rng: random.Random, number: int) -> dict[str, Any]:
    changes = {
        "on_signature_change": rng.choice(["refuse", "record"]),
        "exactness": rng.choice(["bitwise", "bitwise", "statistical"]),
    }
    return wide_study(rng, number) | changes


def manifold_study(rng: random.Random, number: int) -> dict[str, Any]:
    extra = {
        "further": rng.choice([(Objective("w", "minimize"),), ()]),
        "constraints": rng.choice([(("c", 0.5),), ()]),
        "observations": (Observation((("x", 3),), 0.5, ((1, 0.4), (2, 0.5)), "warm"),),
    }
    return any_study(rng, number) | extra | {"keep_checkpoints": rng.choice([1, 2, 4])}


def limited_study(rng: random.Random, number: int) -> dict[str, Any]:
    """One or two limits, of what a few of its epochs take up to what most of them do."""
    limits = {
        "device_hours": rng.uniform(3.0, 40.0) / 3600,
        "kwh": rng.uniform(3.0, 40.0) / 3.6e6,
        "money": rng.uniform(3.0, 40.0) / 3600,
        "deadline": rng.uniform(2.0, 60.0),
    }
    names = rng.sample(sorted(limits), rng.choice([1, 1, 2]))
    chosen = {name: round(limits[name], 9) for name in names}
    plans = [plan for plan in PLANS if plan.max_epochs is not None]
    fields = {"strategy": rng.choice(plans), "at_limit": rng.choice(["stop", "pause", AT_BEST])}
    return any_study(rng, number) | fields | chosen


def common_study(rng: random.Random, number: int) -> dict[str, Any]:
    """Most have epochs in common, and some with other studies, too."""
    return {
        "strategy": rng.choice([plan for plan in PLANS if plan.max_epochs is not None]),
        "n_trials": rng.randint(3, 12),
        "contract": rng.choice(["torch", "torch", "empty"]),
        "sampler": rng.choice(["grid", "random", "tpe", "tpe"]),
        "seeding": rng.choice(["shared"] * 7 + ["trial"]),
        "seed": rng.choice([5, 5, 69]),
        "replicates": rng.choice([1, 1, 1, 2]),
        "data_token": rng.choice([None, "data", "data", "data"]),
        "retries": rng.randint(0, 1),
        "max_segment": rng.choice([1, 2, 64]),
        "keep_checkpoints": rng.choice([1, 1, 3]),
        "max_width": rng.choice([1, 1, 1, 1, 1, 2]),
        "shards": 4,
        "batch_size": 256,
    }


def returning_study(rng: random.Random, number: int) -> dict[str, Any]:
    fields = {"strategy": rng.choice([StrategySpec("full"), *PLANS[:4]]), "contract": "objective"}
    return manifold_study(rng, number) | fields


THEMES = {
    "strategies": Theme(any_study, sequences=24),
    "gangs": Theme(wide_study, policies=tuple(POLICIES), devices=5, sequences=24),
    "windows": Theme(
        widened_study,
        {"train_oddly": 6.0, "submit": 4.0, "join": 4.0, "leave": 1.5, "choose_policy": 0.1},
        ("waterfill", "waterfill", "fifo"),
        devices=8,
        studies=2,
        seconds=4.0,
        sequences=24,
        events=(80, 200),
    ),
    "packing": Theme(
        narrow_study,
        {"train": 120.0, "leave": 0.2, "drain": 0.2, "end_early": 0.2},
        slots=(2, 3, 4),
        devices=2,
        studies=2,
        events=(120, 300),
        needs=("memory", "system_tuning"),
    ),
    "memory": Theme(
        sized_study,
        {"train": 120.0, "footprint": 40.0, "fail": 4.0, "leave": 0.2, "drain": 0.2},
        ("fifo", "fifo", "pack", "waterfill", "srtf"),
        slots=(1, 2, 4),
        devices=3,
        studies=4,
        memory=True,
        sequences=30,
        events=(160, 320),
        needs=("fusion", "lanes", "memory", "system_tuning"),
    ),
    "models": Theme(
        choosing_study,
        {"train": 90.0, "describe": 40.0, "footprint": 8.0, "measure": 20.0, "profile": 6.0}
        | {"leave": 0.2, "cancel": 0.1, "extend": 0.0, "restore": 0.1},
        ("fifo", "waterfill", "srtf"),
        slots=(1, 1, 2),
        cores=4,
        devices=3,
        studies=3,
        memory=True,
        models=True,
        needs=("fusion", "lanes", "memory", "nas", "system_tuning"),
        sequences=24,
        events=(160, 320),
    ),
    "crowded": Theme(
        narrow_study,
        {"train": 120.0, "fail": 2.0},
        slots=(1, 2, 3),
        devices=3,
        stretch=(1.0, 2.1, 3.4),
        studies=3,
        events=(100, 260),
        needs=("memory", "system_tuning"),
    ),
    "tuning": Theme(
        tuned_study,
        {"train": 90.0, "measure": 60.0, "profile": 8.0, "leave": 0.1, "cancel": 0.05},
        cores=4,
        devices=2,
        studies=2,
        seconds=4.0,
        sequences=24,
        events=(120, 300),
    ),
    "forks": Theme(forking_study, {"durable": 12.0}, sequences=18, events=(80, 300)),
    "shares": Theme(
        rival_study, {"weigh": 3.0, "submit": 5.0}, tuple(POLICIES), devices=6, sequences=18
    ),
    "drains": Theme(
        wide_study,
        {"take_out": 5.0, "give_back": 5.0, "drain": 2.0, "tick": 10.0, "join": 4.0, "leave": 2.0},
        ("fifo", "waterfill"),
        devices=5,
        sequences=18,
    ),
    "ask_tell": Theme(
        asked_study,
        {"ask": 25.0, "tell": 20.0, "close": 2.5, "enqueue": 4.0, "train": 15.0},
        sequences=12,
        events=(60, 160),
    ),
    "faults": Theme(
        any_study,
        {"lose": 12.0, "fail": 10.0, "train_oddly": 12.0, "undurable": 3.0, "tick": 10.0},
        slots=(1, 2),
        sequences=18,
        needs=("memory", "system_tuning"),
    ),
    "signatures": Theme(
        checked_study, {"train_oddly": 10.0, "lose": 6.0, "join": 4.0}, devices=4, sequences=15
    ),
    "lives": Theme(
        any_study,
        {"extend": 9.0, "pause": 3.0, "resume": 5.0, "cancel": 1.5, "bring_in": 2.0, "train": 40.0},
        sequences=24,
    ),
    "limits": Theme(
        limited_study,
        {"tick": 12.0, "resume": 4.0, "extend": 2.0, "submit": 4.0},
        prices=(("cpu", 1.0),),
        slots=(1, 2),
        seconds=0.3,
        needs=("limits", "memory", "system_tuning"),
        sequences=24,
    ),
    "prefixes": Theme(
        common_study,
        {"train": 90.0, "durable": 14.0, "submit": 6.0, "extend": 1.5, "delete": 0.5}
        | {"suggest": 0.15, "train_oddly": 2.0, "restore": 0.1, "choose_policy": 0.1}
        | {"differ": 6.0},
        ("fifo", "fifo", "dynamic_fluid"),
        common=True,
        needs=("prefixes", "system_tuning"),
        sequences=24,
        events=(120, 320),
    ),
    "objectives": Theme(manifold_study, {"durable": 12.0, "end_early": 2.0}, sequences=15),
    "returns": Theme(returning_study, {"end_early": 9.0, "suggest": 12.0}, sequences=12),
    "plugins": Theme(
        rival_study, {"answer": 20.0, "answer_oddly": 2.0}, (PLUGIN,), devices=4, sequences=15
    ),
    "restored": Theme(wide_study, {"restore": 1.5, "durable": 10.0}, ("waterfill",), sequences=9),
}
