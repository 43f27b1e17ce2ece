"""Measure the house: rooms, circles, chains of classes, functions, and the way of one epoch.

Read from the package's files by AST (``package``), but for the epoch's way, which a real study
shows (``epoch_walk``), for what fails without an extension (``removable``), and for what pages say
of figures (``measured``). Framings and relays are as ``ways`` says.

A room is a folder with its ``.py`` files, ``__init__.py`` among them. A chain's depth counts our
own classes, its root as one. Circles are of files, by imports of every kind. A function's lines run
from ``def`` to its end. A function is over 60 lines where it has more without its docstring and is
no pure declaration: one whose body only calls, assigns and returns, without a choice, a loop or a
function of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from penstock.app.extensions import EXTENSIONS

from benchmarks.house.epoch_walk import walk
from benchmarks.house.seams import seams
from benchmarks.house.texts import texts
from benchmarks.house.walls import walls
from benchmarks.house.ways import ways
from testkit import removable
from testkit.checkouts import Checkout, checkout_of, this_checkout
from testkit.measured import PAGE, Home
from testkit.package import Package, of_benchmarks
from testkit.results import Run
from testkit.shown_changes import hunks

#: Lines, without its docstring, above which a function is long.
LONG = 60
#: Epochs of the study that shows an epoch's way.
EPOCHS = 20


def read(package: Package) -> dict[str, Any]:
    """All figures that the files alone give."""
    sizes = {room: len(files) for room, files in package.rooms.items()}
    deepest = max(map(package.line_of, package.classes), key=len)
    functions = package.functions
    long = [one for one in functions if one.lines - one.docstring > LONG]
    [create_study] = [one for one in functions if one.name == "create_study"]
    return {
        "files_per_room.max": max(sizes.values()),
        "files_per_room": dict(sorted(sizes.items(), key=lambda item: -item[1])),
        "inheritance_depth.max": len(deepest),
        "inheritance_depth": deepest,
        "circles": len(package.circles),
        "circles.files": package.circles,
        "functions": len(functions),
        "functions.median_lines": median(one.lines for one in functions),
        "functions.over_60_lines": sum(not one.declares for one in long),
        "functions.long": {
            f"{one.file}:{one.name}": one.lines - one.docstring for one in long if not one.declares
        },
        "functions.declarations": {
            f"{one.file}:{one.name}": one.lines - one.docstring for one in long if one.declares
        },
        "duplicate_class_names": len(package.duplicates),
        "duplicate_classes": package.duplicates,
        "create_study.arguments": create_study.arguments,
    } | _of_benchmarks(package.root)


def _of_benchmarks(root: Path) -> dict[str, Any]:
    found = of_benchmarks(root)
    return {name: len(where) for name, where in found.items()} | {
        f"{name}.where": where for name, where in found.items()
    }


def measure(checkout: Checkout, epochs: int) -> dict[str, Any]:
    """All figures of a checkout, which are read from its files and seen in a study that it runs."""
    package = Package(checkout.root)
    files = read(package) | seams(package) | walls(package) | ways(package) | texts(package)
    return files | walk(checkout, epochs)


def told() -> dict[str, Any]:
    """Return how well this checkout's pages tell its kept figures."""
    home = Home()
    unknown, disagreeing = home.unknown(), home.disagreeing()
    changed = sorted(file for file, _, _ in hunks("Add a number to a report"))
    return {
        "new_number.files": len(changed),
        "new_number.files.where": changed,
        "measured_kb": PAGE.stat().st_size / 1000,
        "pages_that_disagree": len({each.partition(": ")[0] for each in disagreeing}),
        "pages_that_disagree.where": disagreeing,
        "figures_without_json": len(unknown),
        "figures_without_json.where": unknown,
    }


def show(figures: dict[str, Any], beside: dict[str, Any]) -> None:
    """Print a line a number, next to the other commit's, and then this checkout's lists."""
    for name, value in figures.items():
        if not isinstance(value, dict | list):
            print(f"{name:26}{value:8g}", *([f"{beside[name]:8g}"] if name in beside else []))
    for name, value in figures.items():
        if isinstance(value, dict | list) and value:
            print(f"\n{name}")
            for row in value.items() if isinstance(value, dict) else value:
                print(" ", *(row if isinstance(row, list | tuple) else [row]))


def main() -> None:
    """Print the figures and lists, write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="half the epochs, nothing removed")
    parser.add_argument("--beside", metavar="COMMIT", help="measure this one too")
    options = parser.parse_args()
    this_run = Run("house", baseline="the other commit, if one is named")
    epochs = EPOCHS // 2 if options.quick else EPOCHS
    with this_checkout() as checkout:
        figures = measure(checkout, epochs) | told()
    if not options.quick:
        figures |= removable.measure(EXTENSIONS)
    beside = {}
    if options.beside:
        with checkout_of(options.beside) as checkout:
            beside = measure(checkout, epochs)
    show(figures, beside)
    written = figures | ({"beside": {"commit": options.beside, **beside}} if beside else {})
    this_run.write(options.json, written)


if __name__ == "__main__":
    main()
