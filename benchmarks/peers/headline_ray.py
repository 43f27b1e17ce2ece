"""Ray Tune's part of ``python -m benchmarks.headline`` (``_ray_study``)."""

from __future__ import annotations

from _headline_work import ETA, Training, session
from _ray_study import serve

if __name__ == "__main__":
    serve(session, Training, ETA)
