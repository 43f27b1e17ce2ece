"""Trainables for the integration tests: wrong in each way that a user's can be."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock import Data
from penstock.testkit.digits import DigitsNet
from torch.utils.data import Subset

from user_code.trainees import Small, points


class Mischief(Small):
    """Small, and as parameter ``how`` says: it learns well with ``fine``."""

    def data(self):
        if self.params["how"] == "no data":
            (Path(__file__).parent / "no-such-folder" / "train.csv").read_bytes()
        return super().data()

    def loss(self, model, batch):
        how = self.params["how"]
        if how == "raises":
            raise ValueError("the dog ate the batch")
        if how == "exits":
            sys.exit(3)
        if how == "loops":
            while True:
                pass
        if how == "too big":
            bytearray(1 << 60)
        return super().loss(model, batch)

    def metrics(self, model, batch):
        found = super().metrics(model, batch)
        if self.params["how"] == "nan":
            return {"accuracy": float("nan")}
        return {"f1": 0.5} if self.params["how"] == "other metric" else found


class OnceUnlucky(Small):
    """Its first attempt fails in the second epoch, the next one does not (the file tells)."""

    def loss(self, model, batch):
        self.steps = getattr(self, "steps", 0) + 1
        marker = Path(self.params["marker"])
        if self.steps > 10 and model.training and not marker.exists():
            marker.touch()
            raise OSError("the disk was away for a moment")
        return super().loss(model, batch)


class Paced(Small):
    """A trainable that takes ``pace`` seconds a step until the file ``until`` is there."""

    def loss(self, model, batch):
        if not Path(self.params["until"]).exists():
            time.sleep(self.params["pace"])
        return super().loss(model, batch)


class Leisurely(Small):
    """Two fifths of a second a step, so that there is progress to be seen within an epoch."""

    def loss(self, model, batch):
        time.sleep(0.4)
        return super().loss(model, batch)


class PerShard(Small):
    """Waits for each shard where it ``scales``, which members do side by side.

    Else it waits once a step, and longer in a gang: that is no faster, however busy the machine.
    """

    batch_size = 8

    def __init__(self, params):
        super().__init__(params)
        self.shards = 0

    def data(self):
        data = points(180)
        return Data(Subset(data, range(160)), Subset(data, range(160, 180)))  # 20 steps an epoch

    def loss(self, model, batch):
        self.shards += model.training
        if model.training and self.params.get("scales"):
            time.sleep(0.06)  # long compared with the time to meet on a busy machine
        return super().loss(model, batch)

    def clip(self, model):
        gang, self.shards = self.shards < 4, 0
        if not self.params.get("scales"):
            self.wait(gang)

    def wait(self, gang):
        time.sleep(0.1 if gang else 0.04)


class WaitsInGangs(PerShard):
    """Takes two seconds for a step in a gang, where it has fewer shards, and notes each."""

    def wait(self, gang):
        time.sleep(2.0 if gang else 0.04)
        if gang:
            with Path(self.params["notes"]).open("a", encoding="utf-8") as notes:
                notes.write("step\n")


class Versioned(Small):
    """Reports the version of ``tiny``, which only the environments of studies have."""

    def metrics(self, model, batch):
        import tiny

        return {**super().metrics(model, batch), "tiny": float(tiny.VERSION)}


class SoonEstimated(Paced):
    """Its trainer may spend half of its time on estimates, so that no test waits for them."""

    def data(self):
        from penstock.extensions.memory.traces import estimator

        estimator.SHARE = 0.5
        return super().data()


class Meets(DigitsNet):
    """Before its second and its fourth report it waits in ``folder`` for another trial there."""

    def schedule(self, optimizer):
        self.course = super().schedule(optimizer)
        return self.course

    def loss(self, model, batch):
        done = self.course.last_epoch
        if done in (1, 3):
            folder = Path(self.params["folder"])
            mine = f"{self.params['lr']} {self.params['dropout']} {self.params['batch_size']}"
            (folder / f"{done} {mine}").touch()
            while not any(
                int(epoch) >= done and other != mine
                for epoch, other in (marker.name.split(" ", 1) for marker in folder.iterdir())
            ):
                time.sleep(0.01)
        return super().loss(model, batch)
