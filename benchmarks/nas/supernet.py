"""Super-nets: bits at two widths, two cores against one, and weights against checkpoints.

``mismatch``: epochs of NAS-Bench-201's super-net in gangs of one and two processes, compared by
their state hashes and metrics. ``mixed_parallel``: the reported seconds of its epochs in one
process over those in a gang of two, in alternation: each of eight shards of a batch trains a path
of its own. It is measured on images of CIFAR's size in batches of 64, and ``mixed_parallel_short``
on smaller images in three steps an epoch, of 24, 24 and 8.

``weights``: the time that candidates take to get their weights out of a super-net that a trainer
has loaded, its loading included, compared with a checkpoint loaded for each of them;
``with_build`` includes the time to make their models, which both sides need. ``steps``: batches
trained by a super-net, each a path, compared with the same paths each as a model of its own, which
is made, loads the super-net's weights from a file, and writes them back. Files are in the page
cache and are not synced, which favours the checkpoints.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from penstock import nas
from penstock.extensions.nas.weights import SuperNetWeights
from penstock.tasks.checkpoints.checkpoint import Store
from penstock.tasks.checkpoints.state import state_hash
from torch import nn

from testkit.gangs import Pool, Stage, straight
from testkit.nas_spaces import NasBench201
from testkit.results import summary

#: Of a plan that is timed, after one in which the gang is made.
EPOCHS = 8


def mismatch() -> dict[str, Any]:
    """Return the number of epochs that differ between widths, and of all compared ones."""
    pool = Pool(2)
    try:
        plans = [straight(2, 2, 2), straight(1, 2, 1)]
        other = compared = 0
        for optimizer in ("sgd", "adam"):
            alone = pool.carry_out("supernet", optimizer, straight(1, 1, 1))
            for plan in plans:
                wide = pool.carry_out("supernet", optimizer, plan)
                other += sum(one != two for one, two in zip(alone, wide, strict=True))
                compared += len(alone)
    finally:
        pool.close()
    return {"supernet_mismatch": other, "supernet_compared": compared}


def parallel(pairs: int) -> dict[str, Any]:
    """``mixed_parallel`` and ``mixed_parallel_short``, in ``pairs`` pairs of plans."""
    return {
        **_parallel("mixed_parallel", "CIFAR's supernet", pairs),
        **_parallel("mixed_parallel_short", "large supernet", pairs),
    }


def _parallel(figure: str, model: str, pairs: int) -> dict[str, Any]:
    pool, one, two = Pool(2), list[float](), list[float]()
    stages = {width: straight(*[width] * (1 + EPOCHS)) for width in (1, 2)}

    def seconds(plan: tuple[Stage, ...]) -> float:
        pool.carry_out(model, "sgd", plan)
        return sum(pool.seconds[1:]) / EPOCHS

    try:
        for _ in range(pairs):
            one.append(seconds(stages[1]))
            two.append(seconds(stages[2]))
    finally:
        pool.close()
    ratios = [a / b for a, b in zip(one, two, strict=True)]
    return {
        figure: summary(ratios),
        f"{figure}.epoch_seconds": [median(one), median(two)],
    }


def weights(paths: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Seconds for the weights of candidates, out of a super-net and out of files."""
    net = nas.supernet(NasBench201)
    state = {"model": dict(net.state_dict())}
    uri = Store(folder.as_uri()).save(state, 1)
    began = time.perf_counter()
    models = [nas.build(NasBench201, path) for path in paths]
    built = time.perf_counter() - began
    whole = net.state_dict()
    for number, model in enumerate(models):
        torch.save({name: whole[name] for name in model.state_dict()}, folder / f"{number}.pt")
    source = SuperNetWeights()
    name = state_hash(state)
    ours = _seconds(lambda: [source.give(each, uri, name) for each in models])
    given = [_copied(each) for each in models]
    theirs = _seconds(lambda: [_load(each, folder / f"{n}.pt") for n, each in enumerate(models)])
    assert all(_equal(one, each.state_dict()) for one, each in zip(given, models, strict=True))
    return {
        "supernet_vs_checkpoint": theirs / ours,
        "supernet_vs_checkpoint.with_build": (theirs + built) / (ours + built),
        "supernet_vs_checkpoint.ms": [1e3 * each / len(paths) for each in (ours, theirs, built)],
    }


def steps(paths: int, folder: Path) -> dict[str, Any]:
    """Seconds of batches, each another path, in a super-net and with a file between them."""
    images, labels = torch.rand(32, 3, 16, 16), torch.arange(32) % 10

    def step(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    drawn: list[dict[str, Any]] = []
    net = nas.supernet(NasBench201)
    choosing = [each for each in net.modules() if isinstance(each, nas.LayerChoice)]

    def in_the_net() -> None:
        torch.manual_seed(0)
        for _ in range(paths):
            net.zero_grad(set_to_none=True)
            step(net)
            drawn.append({each.label: each.key for each in choosing})

    file = folder / "all.pt"
    torch.save(net.state_dict(), file)

    def with_files() -> None:
        for path in drawn[:paths]:
            model = nas.build(NasBench201, path)
            whole = torch.load(file, weights_only=True)
            model.load_state_dict({name: whole[name] for name in model.state_dict()})
            step(model)
            torch.save(whole | model.state_dict(), file)

    ours, theirs = _seconds(in_the_net), _seconds(with_files)
    return {
        "supernet_vs_checkpoint.steps": theirs / ours,
        "supernet_vs_checkpoint.step_ms": [1e3 * each / paths for each in (ours, theirs)],
    }


def figures(paths: list[dict[str, Any]], pairs: int) -> dict[str, Any]:
    """All of it, at one thread a process; each time the median of ``pairs``."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found = [weights(paths, folder) | steps(len(paths), folder) for _ in range(pairs)]
    finally:
        torch.set_num_threads(threads)
    together: dict[str, Any] = {}
    for key in found[0]:
        values = [each[key] for each in found]
        if isinstance(values[0], list):
            together[key] = [median(each) for each in zip(*values, strict=True)]
        else:
            together[key] = summary(values)
    return together


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _load(model: nn.Module, file: Path) -> None:
    model.load_state_dict(torch.load(file, weights_only=True))


def _copied(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())
