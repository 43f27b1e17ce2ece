"""Ray Tune's part of ``python -m benchmarks.ordinary`` (``_ray_study``)."""

from __future__ import annotations

from _ordinary_work import ETA, session, training
from _ray_study import serve

if __name__ == "__main__":
    serve(session, training, ETA)
