"""Models with choices: published spaces, repair, and predictions of time.

    python -m benchmarks.nas --json FILE [--only PART ...] [--quick]

- ``space``: three published spaces, written with ``penstock.nas``. The dry run finds their choices,
  ``nas.size`` counts them (``counted``), and ``published`` is what the paper says: a number
  (NAS-Bench-201), or a product and the power of ten that it is about (DARTS' appendix C, MnasNet's
  section 4.1). ``seconds`` is the dry run, ``built`` how many configurations, at random, were
  built and gave an output of the right shape.
- ``repaired``: 1,000 random mutations of four nets (``nas_mutations``; 100 with ``--quick``),
  drawn by the hash of the commit that froze the repair: the parts that were built and trained a
  step, and that were refused with names, models with wrong shapes, anything else by its kind,
  and the median milliseconds of a model that was built and of one that was refused.
- ``features``: 40 architectures of a MnasNet-like space (12 with ``--quick``), each really trained
  for an epoch: how far that is from what the cost table predicts (``features``).
- ``data_sharing``: 8 different architectures on examples that Python augments, at the same time in
  two trainers of one core, and one after the other in two (``over_processes``); the same on data
  in memory (``in_memory``), where there is nothing to gain (``sharing``).
- ``frozen``: 8 different architectures behind frozen convolutions in ``encoder()``, over the
  convolutions in each step (``over_processes``), and over each process' own ``encoder()``
  (``over_cached``).
- ``adapters``: likewise 12 models of 3 architectures; ``adapters.fit``: how many together have the
  bytes of 12 processes. Retiarii (OSDI 2020) gives 1.76 times the speed and 192 models for 12.
- ``equal``: how many of a space's configurations are different architectures, and how many begin
  with different bits (``equal``).
- ``supernet``: the super-net of NAS-Bench-201 at one and two cores, bits and seconds, and weights
  out of it compared with checkpoints (``supernet``).
- ``search``: regularised evolution minus random search after equal epochs, with its interval, on
  two published tables of architectures: 10 seeds (2 with ``--quick``; ``search``). It is left
  out where the package with the tables is not installed.
- ``wall``: 200 models of the MnasNet space (20 with ``--quick``), an epoch each: with what Penstock
  does across models, without, and in a process a model (``wall``).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from math import log10, prod
from pathlib import Path
from typing import Any

import torch
from penstock import nas

from testkit.nas_mutations import figures
from testkit.nas_spaces import Darts, MnasNet, NasBench201, at_random
from testkit.results import Run

from ..lib.frozen import frozen_seed
from .equal import equal
from .features import predicted
from .search import search
from .sharing import MOST_ROUNDS, adapters, data_sharing, frozen
from .supernet import figures as inherited
from .supernet import mismatch, parallel
from .wall import space as space_of_the_wall
from .wall import wall

#: The class, its paper's number of models, and the power of ten that the paper gives with it.
PUBLISHED: dict[str, tuple[type[nas.ModelSpace], int, int | None]] = {
    # Abstract and section 2: 15,625 cells of four nodes and five operations.
    "nas_bench_201": (NasBench201, 15_625, None),
    # Appendix C: for k = 1 to 4 the product of (k+1)k/2 * 7**2, about 10**9 cells; normal and
    # reduction cells together about (10**9)**2 = 10**18.
    "darts": (Darts, prod((k + 1) * k // 2 * 7**2 for k in range(1, 5)) ** 2, 18),
    # Section 4.1: S**B with S = 432 and B = 5, about 10**13.
    "mnasnet": (MnasNet, 432**5, 13),
}
BUILT = 20
#: Paths of the judging and the judged code; their last commit seeds the mutations.
FROZEN = ["extensions/nas/graphs", "testkit/nas_mutations.py", "testkit/nas_nets.py"]
MUTATIONS = {False: 1000, True: 100}
TRAINED = {False: 40, True: 12}
#: Candidates, and pairs of measurements of which the median counts.
CANDIDATES = {False: (60, 5), True: (20, 3)}
#: Models of ``wall``, and rounds in which each side trains a part of them.
WALL = {False: (200, 4), True: (20, 1)}


def spaces() -> dict[str, Any]:
    """Counted and published sizes, and whether configurations at random can be built."""
    found: dict[str, Any] = {}
    for name, (model, published, power) in PUBLISHED.items():
        begin = time.perf_counter()
        space = nas.space(model)
        seconds = time.perf_counter() - begin
        figures: dict[str, Any] = {
            "counted": nas.size(space),
            "published": published,
            "seconds": seconds,
            "built": sum(works(model, params) for params in at_random(space, BUILT)),
        }
        if power is not None:
            # "About 10**9" of 1.04e9 and "about 10**13" of 1.5e13 are the nearest powers of ten.
            figures |= {"published_power": power, "counted_log10": log10(figures["counted"])}
        found |= {f"space.{name}.{key}": value for key, value in figures.items()}
    return found


def works(model: type[nas.ModelSpace], params: dict[str, Any]) -> bool:
    """Return True if the model of ``params`` gives ten numbers an image."""
    built = nas.build(model, params)
    return built(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def repaired(*, quick: bool) -> dict[str, Any]:
    """Random mutations, by the seed that nobody could tune to."""
    found = figures(MUTATIONS[quick], frozen_seed(FROZEN))
    return {f"repaired.{key}": value for key, value in found.items()}


SHARING = {each.__name__: each for each in (data_sharing, frozen, adapters)}
PARTS = ("space", "repaired", "features", *SHARING, "equal", "supernet", "search", "wall")


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer of each")
    given = parser.parse_args()
    this_run = Run("nas", baseline="of each part: see the module's docstring")
    found: dict[str, Any] = {"cores": os.cpu_count(), "load.begin": os.getloadavg()[0]}
    if "space" in given.only:
        found |= spaces()
    if "repaired" in given.only:
        found |= repaired(quick=given.quick)
    if "features" in given.only:
        found |= predicted(TRAINED[given.quick])
    for part in [each for each in SHARING if each in given.only]:
        measured = SHARING[part](3 if given.quick else MOST_ROUNDS)
        found |= {f"{part}.{name}": value for name, value in measured.items()}
    if "equal" in given.only:
        found |= equal()
    if "supernet" in given.only:
        count, pairs = CANDIDATES[given.quick]
        paths = at_random(nas.space(NasBench201), count)
        found |= mismatch() | parallel(pairs) | inherited(paths, pairs)
    if "search" in given.only:
        measured = search(quick=given.quick)
        found |= {f"search.{name}": value for name, value in measured.items()}
    if "wall" in given.only:
        count, rounds = WALL[given.quick]
        measured = wall(at_random(space_of_the_wall(), count), rounds)
        found |= {f"wall.{name}": value for name, value in measured.items()}
    found["load.end"] = os.getloadavg()[0]
    this_run.write(given.json, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
