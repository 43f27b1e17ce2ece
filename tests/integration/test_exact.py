"""The same (trial, epoch) has the same bits wherever and however often it is computed.

Real Celery workers and trainers; the test plays the scheduler, so that it says what runs where.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from patience import PATIENCE, until
from penstock.app.broker import server
from penstock.app.broker.transport import RedisTransport
from penstock.app.common.ports import Effects
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.study import Code
from penstock.tasks.contracts.code import reference
from servers.worker_bench import KEY, SPEC, bench

from testkit.digits import DigitsNet

pytestmark = pytest.mark.integration

LAST = 12
SPEC = replace(SPEC, contract="torch", code=Code(*reference(DigitsNet)), metric="accuracy", seed=3)
#: 163 steps an epoch: a fault hits it in the middle.
PARAMS = (("lr", 0.003), ("hidden", 64), ("dropout", 0.2), ("batch_size", 8))


class Trial:
    """The accepted epochs and durable states of a trial, as the scheduler would keep them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epochs: dict[int, tuple] = {}
        self.parents: tuple[Parent, ...] = ()
        self.replayed: list[tuple[int, int]] = []

    def send(self, at, last: int, parents: tuple[Parent, ...] = ()) -> None:
        """Dispatch the epochs after the accepted ones up to ``last``."""
        first = len(self.epochs) + 1
        segment = at.dispatch(self.name, first=first, n=last - first + 1, params=PARAMS)
        expect = self.epochs[first - 1][0] if self.epochs else ""
        segment = replace(segment, parents=parents, expect=expect, final=True)
        at.transport.carry_out(Effects(dispatches=[(segment, SPEC)]))

    def hear(self, at, enough) -> None:
        """Accept what is reported until ``enough``."""

        def heard():
            messages = at.transport.receive(0.05)
            at.transport.carry_out(Effects(acks=messages))
            for body in [message.body for message in messages]:
                assert body["kind"] in {"epoch", "durable", "replayed"}, body
                assert body["trial"] == self.name
                if body["kind"] == "replayed":
                    self.replayed.append((body["first"], body["last"]))
                elif body["kind"] == "durable":
                    parent = Parent(body["epoch"], body["uri"], body["state_hash"])
                    self.parents = (parent, *self.parents)
                else:
                    assert body["epoch"] == len(self.epochs) + 1
                    bits = (body["state_hash"], body["metrics"], body["signature"])
                    self.epochs[body["epoch"]] = bits
            return enough()

        until(heard)

    def run(self, at, last: int, parents: tuple[Parent, ...] = ()) -> None:
        """As ``send``, until the end is durable."""
        self.send(at, last, parents)
        self.hear(at, lambda: self.parents and self.parents[0].epoch == last)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """Two workers on one broker."""
    with bench(tmp_path_factory.mktemp("exact"), lease_ms=3000) as one:
        one.transport.close()
        one.transport = RedisTransport(
            server.broker_url(one.settings), KEY, lease_ms=3000, store=one.settings.store_url
        )
        one.transport.open()
        cores = (one.device.cores[0],)
        one.device = Device("cpu.n.0", "n", "cpu", cores, None, 1)
        other = replace(one, device=Device("cpu.n.1", "n", "cpu", cores, None, 1))
        yield one, one.start_worker(), other, other.start_worker()


def test_a_trial_paused_moved_killed_and_replayed_has_the_bits_of_one_left_alone(workers):
    one, _, other, other_worker = workers
    alone = Trial("st-alone")
    alone.run(one, LAST)

    trial = Trial("st-moved")
    trial.run(one, 2)  # and is paused
    trial.run(other, 4, trial.parents)  # goes on elsewhere, from its checkpoint
    trial.send(other, LAST)  # warm there
    trial.hear(one, lambda: len(trial.epochs) > 4)
    other_worker.kill()
    until(lambda: one.seen(trial.name).absent)
    trial.hear(one, lambda: True)  # what it had reported before
    killed_after = len(trial.epochs)
    assert 4 < killed_after < LAST, "killed in the middle of its segment"

    trial.run(one, LAST - 1, trial.parents)  # replayed from the checkpoint after epoch 4
    [trainer] = one.trainers()
    trainer.kill()
    # While it ends, it is in no list of trainers, and its worker may still have it.
    trainer.wait(PATIENCE)
    trial.run(one, LAST)  # replayed from its initialisation

    # From the checkpoint after epoch 4, then from nothing.
    assert trial.replayed == [(5, killed_after), (1, LAST - 1)]
    assert [parent.epoch for parent in trial.parents] == [LAST, LAST - 1, 4, 2]
    assert trial.epochs == alone.epochs
    assert trial.parents[0].uri == alone.parents[0].uri, "the checkpoints are the same bytes"
