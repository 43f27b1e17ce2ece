"""Ray Tune's part of ``python -m benchmarks.headline`` (``_ray_study``)."""

from __future__ import annotations

from _headline_work import ETA, Training, session
from _ray_study import Trial, serve


class Trained(Trial):
    """A trial of the headline."""

    @staticmethod
    def made(config):
        return Training(config["case"], config["point"], config["seed"], config["log"])


if __name__ == "__main__":
    serve(session, Trained, ETA)
