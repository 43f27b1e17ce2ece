"""Ray Tune's part of ``python -m benchmarks.ordinary`` (``_ray_study``)."""

from __future__ import annotations

from _ordinary_work import ETA, session, training
from _ray_study import Trial, serve


class Trained(Trial):
    """A trial of an ordinary study."""

    @staticmethod
    def made(config):
        return training(config["case"], config["point"], config["seed"], config["log"])


if __name__ == "__main__":
    serve(session, Trained, ETA)
