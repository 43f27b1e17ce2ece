"""Random mutations of four nets: how many are built, train a step, and have the right shape.

A mutation is one to three changes at places drawn from all layers but the last: another width (of
one kernel for each channel, a multiple), kernel, stride, dilation, activation or norm; fewer groups
or more; a layer put in, taken away; a connection from up to six places above, added or
concatenated; another input from there. Nobody looks whether a change makes sense there.

A model that ``nas.build`` gives is judged without what repaired it: it trains a step with SGD,
and gives ten finite numbers an image for another number of images, in training and in evaluation.
One that it does not give must be refused by a UsageError with a place and a mutator of ours.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

import torch
from penstock import UsageError, nas
from torch import nn

from .nas_nets import NETS, WIDTH, Net

Change = Callable[[nas.Site], object]
FACTORS = [0.5, 0.75, 1.25, 1.5, 2]
ABOVE = 6


def changes(kind: type[nn.Module], layer: Any, chance: Random) -> dict[str, Change]:
    """Return the possible changes of a layer, by name, with all numbers drawn."""
    name, out = chance.choice(["ReLU", "GELU", "SiLU", "Hardswish"]), chance.choice([8, 12, 24])
    up = chance.randint(1, ABOVE)
    found: dict[str, Change] = {
        "activate": lambda site: site.insert(name),
        "remove": lambda site: site.remove(),
        "add": lambda site: site.connect(above(site, up, chance)),
        "cat": lambda site: site.connect(above(site, up, chance), "cat"),
        "rewire": lambda site: site.rewire(0, above(site, up + 1, chance)),
        "convolve": lambda site: site.insert("Conv2d", 1, out, 1),
        "normalise": lambda site: site.insert("BatchNorm2d", 1),
    }
    if kind is nn.Conv2d:
        kernel, factor = chance.choice([1, 3, 5]), chance.choice(FACTORS)
        groups, depthwise = chance.choice([1, 2, 4, 8]), layer.groups == layer.in_channels
        width = int(layer.out_channels * (2 if depthwise else factor))
        stride, dilation = chance.choice([1, 2]), chance.choice([1, 2])
        found |= {
            "width": lambda site: site.update(out_channels=width),
            "kernel": lambda site: site.update(
                kernel_size=kernel, padding=kernel // 2 * site.module.dilation[0]
            ),
            "stride": lambda site: site.update(stride=stride),
            "dilation": lambda site: site.update(
                dilation=dilation, padding=site.module.kernel_size[0] // 2 * dilation
            ),
            "groups": lambda site: site.update(groups=groups),
        }
    elif kind is nn.BatchNorm2d:
        groups = chance.choice([1, 2, 4])
        found["norm"] = lambda site: site.replace("GroupNorm", groups, layer.num_features)
    elif kind is nn.ReLU:
        found["activation"] = lambda site: site.replace(name)
    return found


def above(site: nas.Site, steps: int, chance: Random) -> nas.Site:
    """A place at most ``steps`` above."""
    for _ in range(steps):
        inputs = [each for each in site.inputs if each.module is not None or each.function]
        if not inputs:
            break
        site = chance.choice(inputs)
    return site


def mutation(net: type[Net], chance: Random) -> list[nas.Mutator]:
    """One to three mutators, each of which does one thing at one place."""
    model = net(WIDTH)
    places = [
        (name, module)
        for name, module in model.named_modules()
        if not [*module.children()] and name != "head"
    ]
    found = []
    for number in range(chance.randint(1, 3)):
        name, layer = chance.choice(places)
        kinds = changes(type(layer), layer, chance)
        kind = chance.choice(sorted(kinds))
        match = _at(name)
        found.append(nas.Mutator(f"{kind}-{number}", match, kinds[kind], needed=False))
    return found


def _at(name: str) -> Callable[[nas.Site], bool]:
    return lambda site: site.name == name


def judged(net: type[Net], mutators: list[nas.Mutator]) -> tuple[str, float, str]:
    """Return a mutation's outcome ("built", "refused" or a fault), its ms, and the error's text."""
    begin = time.perf_counter()
    try:
        model = nas.build(net, {}, mutators=mutators, width=WIDTH)
    except UsageError as error:
        spent = 1000 * (time.perf_counter() - begin)
        ours = any(each.name in error.field for each in mutators)
        named = ours and " at " in str(error)
        return "refused" if named else "refused without names", spent, str(error)
    except Exception as error:
        return f"raised {type(error).__name__}", 0.0, str(error)
    spent = 1000 * (time.perf_counter() - begin)
    try:
        return _trained(model), spent, ""
    except Exception as error:
        return "does not train", spent, str(error)


def _trained(model: Net) -> str:
    images, labels = torch.randn(6, 3, 16, 16), torch.arange(6)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    scores = model.train()(images)
    if scores.shape != (6, 10):
        return "wrong shape"
    nn.functional.cross_entropy(scores, labels).backward()
    optimiser.step()
    with torch.no_grad():
        scores = model.eval()(images[:3])
    if scores.shape != (3, 10):
        return "wrong shape"
    return "built" if scores.isfinite().all() else "not finite"


def figures(count: int, seed: str) -> dict[str, Any]:
    """Return outcomes of ``count`` mutations of all nets in turn, drawn by ``seed``. One thread."""
    torch.set_num_threads(1)
    fates: Counter[str] = Counter()
    by_net: dict[str, Counter[str]] = {name: Counter() for name in NETS}
    spent: dict[str, list[float]] = {"built": [], "refused": []}
    reasons: list[str] = []
    for number in range(count):
        name = [*NETS][number % len(NETS)]
        torch.manual_seed(number)
        mutators = mutation(NETS[name], Random(f"{seed}/{number}"))
        fate, ms, reason = judged(NETS[name], mutators)
        fates[fate] += 1
        by_net[name][fate] += 1
        if fate in spent:
            spent[fate].append(ms)
        if fate != "built":
            reasons.append(f"{number} {name} {fate}: {reason}")
    return {
        "mutations": count,
        "seed": seed,
        "built": fates["built"] / count,
        "refused_with_names": fates["refused"] / count,
        "wrong_shapes": fates["wrong shape"],
        "other": {k: v for k, v in fates.items() if k not in {"built", "refused", "wrong shape"}},
        "by_net": {name: each["built"] / max(1, each.total()) for name, each in by_net.items()},
        **{f"ms.{fate}": median(each) if each else None for fate, each in spent.items()},
        "reasons": reasons,
    }
