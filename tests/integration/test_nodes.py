"""Several nodes for real: gangs over a network that is cut, slow, or loses a node.

Broker, scheduler and ledger are on the node ``head``; ``a`` and ``b`` train, one device each, so
that a trial of width 2 is on both. All see one folder of checkpoints. Every study is the same one:
it must come out with the bits that it has at width 1 on the head alone.
"""

from __future__ import annotations

import os
import textwrap
import time
from contextlib import ExitStack

import pytest
from machines.network import network
from penstock.scheduler.model.events import AttemptLost
from servers.installation import Installation, serving, working

from testkit.random_widths import RANDOM_WIDTHS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Studies that are only moved about, and those that see a fault: so long that they outlast it.
SHORT, LONG = 12, 60
STEPS, SHARDS = 8, 4
#: Seconds a shard and step: an epoch at width 1 takes 0.6 s, and 1.6 s.
QUICK, SLOW = 0.02, 0.05
#: A study that computes for as long as a file next to it says (seconds a shard and step).
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
        n_trials, epochs, max_width = map(int, sys.argv[1:])
        study = penstock.create_study(
            metric="accuracy", direction="maximize", sampler="random", seed=5,
            resources=penstock.Resources(max_width=max_width, shards={SHARDS}),
            strategy=penstock.FullBudget(epochs),
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
        self._cores = cores = sorted(os.sched_getaffinity(0))
        self._script = folder / "script.py"
        self._script.write_text(textwrap.dedent(STUDY))
        self.common = {"broker": url, "devices": "cpu:1x1", "store": f"file://{folder / 'store'}"}
        self.head = self.site("head", cores[0])
        self.a, self.b = self.site("a", cores[0]), self.site("b", cores[-1])
        self.pace(0)

    def site(self, name, core, **settings) -> Installation:
        """A node that has this core only: so two of them do not share one where there are two."""
        inside = (*self.net.inside(name), "taskset", "-c", str(core))
        settings = self.common | settings
        return Installation(self._folder / name, inside=inside, node=name, **settings)

    def lead(self, policy) -> None:
        """Have the head run this policy; its own device stays out of it."""
        self.head.close()
        self.head = self.site("head", self._cores[0], policy=policy)
        self.head.penstock("up")

    def close(self) -> None:
        self.head.close()

    def join(self, site) -> None:
        """The node agent of ``site`` is started, and gone at the end."""
        _, log = self._undo.enter_context(working(site))
        name = site.settings.node
        self.head.until(lambda: name in serving(self.head), f"{name} joins: {log.read_text()}")

    def pace(self, seconds) -> None:
        new = self._folder / "pace"
        new.write_text(str(seconds))
        new.replace(self._script.with_suffix(".pace"))

    def submit(self, trials, epochs, width=2) -> str:
        """A study that runs by now; its id."""
        known = {study.id for study in self.head.reader.studies()}
        script = self.head.python(self._script, trials, epochs, width)
        [study] = self.head.until(
            lambda: {study.id for study in self.head.reader.studies()} - known, "a study"
        )
        self._undo.callback(self.head.finish, script)
        return study

    def epochs(self, study):
        return self.head.reader.epochs(study)

    def bits(self, study):
        """The hashes of a study when it is over, by trial's number and epoch, none twice."""
        assert self.head.wait(study).status == "complete"
        rows = self.epochs(study)
        bits = {(int(row.trial[-4:]), row.epoch): row.state_hash for row in rows}
        assert len(bits) == len(rows)
        return bits

    def check_to_its_end(self, study) -> None:
        """A long study comes out as it must: nothing lost, nothing doubled, the same bits."""
        self.pace(0)
        assert self.bits(study) == self.expected[LONG]

    def until_wide(self, study) -> None:
        """Until an epoch that has not begun yet is accepted from both nodes."""
        self._until_width(study, 2)

    def until_alone(self, study) -> None:
        self._until_width(study, 1)

    def _until_width(self, study, width) -> None:
        seen = len(self.epochs(study))
        self.head.until(
            lambda: width in [row.width for row in self.epochs(study)[seen:]],
            f"an epoch at width {width}",
        )

    def losses(self, study) -> int:
        """Return the number of lost attempts of the study's trial 0."""
        events = self.head.reader.events(f"{study}-0000")
        return sum(isinstance(event, AttemptLost) for _, event in events)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """The head leads, ``a`` and ``b`` have joined; what a test breaks it mends."""
    with ExitStack() as undo:
        net = undo.enter_context(network("head", "a", "b"))
        url = undo.enter_context(net.broker("head"))
        nodes = Nodes(tmp_path_factory.mktemp("nodes"), net, url, undo)
        undo.callback(nodes.close)
        nodes.lead(RANDOM_WIDTHS)
        nodes.head.until(lambda: serving(nodes.head), "the head serves")
        alone = {SHORT: nodes.submit(2, SHORT, width=1), LONG: nodes.submit(1, LONG, width=1)}
        nodes.expected = {epochs: nodes.bits(study) for epochs, study in alone.items()}
        [device] = nodes.head.reader.devices()
        nodes.head.penstock("devices", "drain", device.device.name)
        for site in (nodes.a, nodes.b):
            nodes.join(site)
        yield nodes


def test_a_trial_at_random_widths_over_two_nodes_has_the_bits_of_one_left_alone(nodes):
    study = nodes.submit(2, SHORT)
    assert nodes.bits(study) == nodes.expected[SHORT]
    rows = nodes.epochs(study)
    assert {row.width for row in rows} == {1, 2}
    assert {row.device.split(".")[1] for row in rows} == {"a", "b"}
    for name in ("a", "b"):
        assert nodes.net.listening(name) == {nodes.net.address(name)}, "others cannot connect"


@pytest.fixture(scope="module")
def in_turn(nodes):
    """From now on a lone trial takes as many devices as make it faster."""
    nodes.lead("fifo")
    return nodes


@pytest.fixture
def mended(in_turn):
    """Repair the network and the pace after each test."""
    yield
    in_turn.pace(0)
    in_turn.net.mend("b")
    in_turn.net.speed_up("b")
    in_turn.net.keep_apart("a", "b", apart=False)


@pytest.fixture
def wide(in_turn, mended):
    """The nodes, and a study of one trial that is on both of them."""
    in_turn.pace(QUICK)
    study = in_turn.submit(1, LONG)
    in_turn.until_wide(study)
    in_turn.pace(SLOW)
    return in_turn, study


def test_a_cable_that_is_cut_costs_the_gang_and_nothing_else(wide):
    nodes, study = wide
    nodes.net.cut("b")
    time.sleep(0.5)  # far less than a lease
    nodes.net.mend("b")
    nodes.until_wide(study)
    nodes.net.cut("b")
    nodes.head.until(lambda: "b" not in serving(nodes.head), "b is missed")
    nodes.until_alone(study)
    nodes.net.mend("b")
    nodes.head.until(lambda: "b" in serving(nodes.head), "b is back")
    nodes.until_wide(study)
    nodes.check_to_its_end(study)


def test_a_node_that_vanishes_is_done_without_until_it_is_back(wide):
    nodes, study = wide
    nodes.net.kill_all("b")
    nodes.head.until(lambda: "b" not in serving(nodes.head), "b is missed")
    nodes.until_alone(study)
    nodes.join(nodes.b)
    nodes.until_wide(study)
    nodes.check_to_its_end(study)


def test_nodes_that_do_not_reach_each_other_work_on_apart(in_turn, mended):
    """Both reach the broker, so that their leases hold."""
    nodes = in_turn
    nodes.net.keep_apart("a", "b")
    nodes.pace(QUICK)
    study = nodes.submit(1, LONG)
    nodes.head.until(lambda: nodes.losses(study) > 1, "two gangs are lost")
    nodes.pace(SLOW)
    nodes.until_alone(study)
    nodes.net.keep_apart("a", "b", apart=False)
    nodes.until_wide(study)
    nodes.check_to_its_end(study)


def test_a_gang_that_a_slow_cable_makes_slower_shrinks_to_one_node(in_turn, mended):
    nodes = in_turn
    nodes.net.slow_down("b", kbit=10_000)
    nodes.pace(QUICK)
    study = nodes.submit(1, LONG)
    nodes.until_wide(study)
    nodes.until_alone(study)
    alone = len(nodes.epochs(study))
    nodes.head.until(lambda: len(nodes.epochs(study)) > alone + 2, "it goes on")
    assert {row.width for row in nodes.epochs(study)[alone:]} == {1}, "it is tried no more"
    nodes.check_to_its_end(study)
