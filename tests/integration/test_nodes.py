"""Several nodes for real: gangs over a network that is cut, slow, or loses a node.

Broker, scheduler and ledger are on the node ``head``; ``a`` and ``b`` train, one device each, so
that a trial of width 2 is on both. All see one folder of checkpoints. Every study is the same one:
it must come out with the bits that it has at width 1 on the head alone.
"""

from __future__ import annotations

import os
import textwrap
from contextlib import ExitStack

import pytest
from installation import Installation, serving, working
from network import network

pytestmark = pytest.mark.integration

TRIALS, EPOCHS = 2, 12
STEPS, SHARDS = 8, 4
#: It computes for as long as the file beside it says (seconds a shard and step).
STUDY = f"""
    import sys
    import time
    from pathlib import Path
    import penstock
    import torch
    from torch.utils.data import TensorDataset

    PACE = Path(__file__).with_suffix(".pace")

    class Net(penstock.TorchTrainable):
        batch_size = {16 * SHARDS}

        def data(self):
            chance = torch.Generator().manual_seed(1)
            x = torch.randn({16 * SHARDS * STEPS} + 64, 64, generator=chance)
            data = TensorDataset(x, (x.sum(1) > 0).long())
            return penstock.Data(*torch.utils.data.random_split(
                data, [len(x) - 64, 64], torch.Generator().manual_seed(2)
            ))

        def model(self):
            return torch.nn.Sequential(
                torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU(),
                torch.nn.Dropout(0.3), torch.nn.Linear(256, 64), torch.nn.Linear(64, 2),
            )

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=self.params["lr"], momentum=0.9)

        def loss(self, model, batch):
            time.sleep(float(PACE.read_text()))
            x, y = batch
            return torch.nn.functional.cross_entropy(model(x), y)

        def metrics(self, model, batch):
            x, y = batch
            return {{"accuracy": (model(x).argmax(1) == y).float().mean()}}

    if __name__ == "__main__":
        n_trials, max_width = map(int, sys.argv[1:])
        study = penstock.create_study(
            metric="accuracy", direction="maximize", sampler="random", seed=5, shards={SHARDS},
            max_width=max_width, strategy=penstock.FullBudget({EPOCHS}),
        )
        study.submit(Net, {{"lr": penstock.Float(1e-3, 1e-1, log=True)}}, n_trials=n_trials)
        print(study.id)
"""


class Nodes:
    """Three nodes, and the script of their study."""

    def __init__(self, folder, net, url, undo) -> None:
        self.net = net
        self._folder = folder
        self._undo = undo
        cores = sorted(os.sched_getaffinity(0))
        self._script = folder / "script.py"
        self._script.write_text(textwrap.dedent(STUDY))
        self.common = {"broker": url, "devices": "cpu:1x1", "store": f"file://{folder / 'store'}"}
        self.head = self.site("head", cores[0])
        self.a, self.b = self.site("a", cores[0]), self.site("b", cores[-1])
        self.pace(0.0)

    def site(self, name, core, **settings):
        inside = (*self.net.inside(name), "taskset", "-c", str(core))
        settings = self.common | settings
        return Installation(self._folder / name, inside=inside, node=name, **settings)

    def lead(self, policy) -> None:
        """Have the head run this policy; its own device stays out of it."""
        self.head.close()
        self.head = Installation(
            self._folder / "head",
            inside=self.head.inside,
            node="head",
            policy=policy,
            **self.common,
        )
        self.head.penstock("up")

    def join(self, site) -> None:
        """The node agent of ``site`` is started, and gone at the end."""
        agent, log = self._undo.enter_context(working(site))
        name = site.settings.node
        self.head.until(lambda: name in serving(self.head), 60, f"{name} joins: {log.read_text()}")
        return agent

    def pace(self, seconds) -> None:
        new = self._folder / "pace"
        new.write_text(str(seconds))
        new.replace(self._script.with_suffix(".pace"))

    def submit(self, trials=TRIALS, width=2) -> str:
        script = self.head.python(self._script, trials, width)
        return self.head.finish(script).split()[-1]

    def epochs(self, study):
        return self.head.reader.epochs(study)

    def bits(self, study):
        """The hashes of a study that is over, by trial's number and epoch; none lost or doubled."""
        assert self.head.wait(study).status == "complete"
        rows = self.epochs(study)
        bits = {(int(row.trial[-4:]), row.epoch): row.state_hash for row in rows}
        assert len(bits) == len(rows)
        return bits


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """The head leads, ``a`` and ``b`` have joined; what a test breaks it mends."""
    with ExitStack() as undo:
        net = undo.enter_context(network("head", "a", "b"))
        url = undo.enter_context(net.broker("head"))
        nodes = Nodes(tmp_path_factory.mktemp("nodes"), net, url, undo)
        undo.callback(lambda: nodes.head.close())
        nodes.lead("shuffle")
        alone = nodes.submit(width=1)
        nodes.expected = nodes.bits(alone)
        assert {row.device.split(".")[1] for row in nodes.epochs(alone)} == {"head"}
        [device] = nodes.head.reader.devices()
        nodes.head.penstock("devices", "drain", device.device.name)
        for site in (nodes.a, nodes.b):
            nodes.join(site)
        yield nodes


def test_a_trial_at_random_widths_over_two_nodes_has_the_bits_of_one_left_alone(nodes):
    study = nodes.submit()
    assert nodes.bits(study) == nodes.expected
    rows = nodes.epochs(study)
    assert {row.width for row in rows} == {1, 2}
    assert {row.device.split(".")[1] for row in rows} == {"a", "b"}


@pytest.fixture(scope="module")
def in_turn(nodes):
    nodes.lead("fifo")
    return nodes

import time, json
from penstock.scheduler.events import *

def show(nodes, study, t0):
    print()
    from penstock.app import database
    import sqlite3
    c = sqlite3.connect(nodes.head.settings.home / "ledger.db")
    for at, kind, body in c.execute("select at, kind, body from event where at > ? order by seq", (t0,)):
        b = json.loads(body)
        if kind in ("AttemptLost","DeviceLeft","DeviceJoined","AttemptFailed","EpochReported"):
            print(f"{at-t0:7.2f}", kind, {k: v for k, v in b.items() if k in ("trial","fence","reason","ranks","epoch","seconds","holder","message", "device")})
    c.close()


def test_a_cut_cable(in_turn):
    nodes, head = in_turn, in_turn.head
    t0 = time.time()
    nodes.pace(0.02)
    study = nodes.submit(1)
    head.until(lambda: any(r.width == 2 for r in nodes.epochs(study)), 30, "wide")
    print("wide at", time.time() - t0)
    try:
        nodes.net.cut("b")
        tc = time.time(); n = len(nodes.epochs(study))
        print("cut at", tc - t0)
        head.until(lambda: len(nodes.epochs(study)) > n + 1, 40, "it goes on")
    finally:
        nodes.net.mend("b")
    print("mended at", time.time() - t0)
    n = len(nodes.epochs(study))
    nodes.pace(0.04)
    try:
        head.until(lambda: any(r.width == 2 for r in nodes.epochs(study)[n:]), 40, "wide again")
        nodes.pace(0)
        bits = nodes.bits(study)
    finally:
        show(nodes, study, t0)
        print(nodes.head.penstock("story", f"{study}/0"))
        print([(r.epoch, r.width, r.device, round(r.at-t0,2), round(r.seconds, 2)) for r in nodes.epochs(study)])
        print(nodes.a.logs()); print(nodes.b.logs())
    assert bits.items() <= nodes.expected.items()
