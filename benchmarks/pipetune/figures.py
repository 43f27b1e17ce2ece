"""Says what system tuning gains on ten workloads: live studies, rules, and an oracle by hand.

    python -m benchmarks.pipetune --json FILE [--quick] [--only NAME ...] [--forms short long]
                                  [--commit HASH] [--rounds N]

The list (``judged``) has a twin for each workload. For both, epochs under every system
configuration are measured by hand, in alternation. Then studies are run on real services: without
tuning, with it for the first time (``cold``), ``again``, and the twin's (``similar``). PipeTune's
V1, V2 and own rule, one trial at a time on all cores, are applied to epochs by hand.

``share`` is the part of the oracle's gain that the chosen configuration has, both by hand: times of
whole studies are noisier than that. ``share_live`` is the same of the studies' own epochs, with the
time that was spent on measuring. Shares count where the oracle saves 5 % or more.
``without_return`` is the time spent on measuring and on a slower configuration, less what a faster
one saved, over all time that slots were held. ``--commit`` draws sizes in a third of the list, by
default by the last commit that touched the judged code.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from testkit.results import Run

from .judged import (
    BOTH_CORES,
    PAPER,
    QUICK,
    WORKLOADS,
    Workload,
    absent,
    frozen_at,
    judged,
)
from .live import FORMS, Form, Ran, Studies, studies
from .live import QUICK as QUICK_FORM
from .measure import Times, by_hand
from .rules import RULES, responses

ROUNDS = 3
#: With less than this to be gained, there is no share of it to be had.
LEAST_GAIN = 0.05
#: Devices and examples of the quick form.
TWO, EXAMPLES = "cpu:2x1", 300
#: Jobs of a queue, and its loads.
JOBS, LOADS, SEEDS = 50, (0.5, 0.7, 0.9), 20


@dataclass(frozen=True)
class Hands:
    """The epochs of a workload by hand: its own, its twin's, and its own on both cores."""

    own: Times
    twin: Times
    both: Times


def measured(workload: Workload, rounds: int, *, both: bool = True) -> Hands:
    """Measure a workload and its twin by hand; ``both``: on both cores, too."""
    own = by_hand(workload.code, workload, workload.devices, rounds)
    twin = by_hand(workload.twin, workload, workload.devices, rounds)
    if both and workload.devices != BOTH_CORES:
        return Hands(own, twin, by_hand(workload.code, workload, BOTH_CORES, rounds))
    return Hands(own, twin, own)


def _hand_figures(hands: Hands) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, times in asdict(hands).items():
        found[f"{name}.epoch_s"] = times["default"]
        found |= {f"{name}.ratio.{key}": each for key, each in times["ratios"].items()}
    found["oracle_gain"], found["twin.oracle_gain"] = hands.own.gain, hands.twin.gain
    low = [each for key, each in hands.own.ratios.items() if "autocast" in key]
    if low:
        found["oracle_gain.bf16"] = 1 - min(*low, *hands.own.ratios.values())
    return found


def tuned(ran: Ran, off_epoch: float, times: Times) -> dict[str, float]:
    """Return the figures of a tuned study by those of one without tuning and by hand."""
    ratio = times.ratios.get(ran.config, 1.0)
    saved = ran.trained * (1 / ratio - 1)
    found = {
        "seconds": ran.total,
        "gain": 1 - ratio,
        "gain_live": 1 - (ran.trained + ran.spent) / (ran.epochs * off_epoch),
        "spent": ran.spent,
        "without_return": max(0.0, ran.spent - saved) / (ran.trained + ran.spent),
        "reused": float(ran.reused),
    }
    if times.gain >= LEAST_GAIN:
        found["share"] = found["gain"] / times.gain
        found["share_live"] = found["gain_live"] / times.gain
    return found


def form_figures(ran: Studies, hands: Hands) -> dict[str, Any]:
    """Return the figures of all studies of a workload."""
    off_epoch = fmean(each.an_epoch for each in ran.off)
    every = {"cold": ran.cold, "again": ran.again}
    found: dict[str, Any] = {k: tuned(each, off_epoch, hands.own) for k, each in every.items()}
    found["similar"] = tuned(ran.similar, ran.twin_off.an_epoch, hands.twin)
    found["off.seconds"] = ran.off_s
    found["twin_off.seconds"] = ran.twin_off.total
    found["off.later_over_earlier"] = ran.off[-1].total / ran.off[0].total
    found["cold_over_off"], found["again_over_off"] = (
        each.total / ran.off_s for each in every.values()
    )
    found["similar_over_off"] = ran.similar.total / ran.twin_off.total
    all_of = (*ran.off, ran.cold, ran.again, ran.twin_off, ran.similar)
    found["false_reasons"] = sum(bool(each.false_reason) for each in all_of)
    for rule, apply in RULES.items():
        found[f"rules.{rule}"] = asdict(apply(hands.both, ran.off[0].accuracies))
    found["again_over_v1"] = ran.again.total / found["rules.v1"]["seconds"]
    return found


def queue(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return mean responses of ``JOBS`` jobs over V1's, at loads that are V1's; 20 % are unseen.

    A job is one of the live studies: a simulated queue of them, first come first served.
    """
    names = list(found)
    mean = fmean(found[name]["rules.v1"]["seconds"] for name in names)
    ratios: dict[str, float] = {}
    for load in LOADS:
        of: dict[str, list[float]] = {"v1": [], "ours": []}
        for seed in range(SEEDS):
            chance = np.random.default_rng([seed, round(10 * load)])
            arrivals = np.cumsum(chance.exponential(mean / load, JOBS)).tolist()
            unseen = chance.random(JOBS) < 0.2
            jobs = [(names[n % len(names)], bool(new)) for n, new in enumerate(unseen)]
            v1 = [found[name]["rules.v1"]["seconds"] for name, _ in jobs]
            ours = [found[name]["cold" if new else "again"]["seconds"] for name, new in jobs]
            of["v1"].append(fmean(responses(arrivals, v1)))
            of["ours"].append(fmean(responses(arrivals, ours)))
        ratios[f"load{load}".replace(".", "_")] = fmean(of["ours"]) / fmean(of["v1"])
    return ratios


def verdict(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures with goals, over all workloads of a form."""
    figures: dict[str, Any] = {"workloads": len(found)}
    for study in ("cold", "again", "similar"):
        of = [each[study] for each in found.values()]
        for key in ("share", "share_live"):
            if shares := [each[key] for each in of if key in each]:
                figures[f"{study}.{key}"] = fmean(shares)
                figures[f"{study}.{key}.least"] = min(shares)
                figures[f"{study}.{key}.of"] = len(shares)
        figures[f"{study}.without_return"] = max(each["without_return"] for each in of)
        ratios = [each[f"{study}_over_off"] for each in found.values()]
        figures[f"{study}_over_off"] = float(np.exp(np.mean(np.log(ratios))))
    if again := [each["again"]["reused"] for each in found.values() if "share" in each["again"]]:
        figures["reused_share"] = fmean(again)
    figures["false_reasons"] = sum(each["false_reasons"] for each in found.values())
    figures["queue_over_v1"] = queue(found)
    if of_paper := {name: found[name] for name in PAPER if name in found}:
        ratios = [each["again_over_v1"] for each in of_paper.values()]
        figures["paper.again_over_v1"] = {"low": min(ratios), "high": max(ratios)}
        for rule in ("v2", "pipetune", "oracle"):
            of_rule = [
                each[f"rules.{rule}"]["seconds"] / each["rules.v1"]["seconds"]
                for each in of_paper.values()
            ]
            figures[f"paper.{rule}_over_v1"] = {"low": min(of_rule), "high": max(of_rule)}
    return figures


def said(name: str, hands: Hands, found: Mapping[str, Any], ran: Studies) -> None:
    """Print the lines of a workload."""
    print(
        f"  {name}: off {ran.off_s:.1f} s, V1 {found['rules.v1']['seconds']:.1f};"
        f" oracle {hands.own.gain:.0%} ({hands.own.best}), twin {hands.twin.gain:.0%}"
        f" ({hands.twin.best}); load {os.getloadavg()[0]:.1f}"
    )
    for study, each in (("cold", ran.cold), ("again", ran.again), ("similar", ran.similar)):
        of = found[study]
        print(
            f"    {study:8}{each.total:6.1f} s ({found[f'{study}_over_off']:.2f})"
            f" share {of.get('share', float('nan')):.2f}"
            f" live {of.get('share_live', float('nan')):.2f}"
            f" without return {of['without_return']:.3f} {each.config}"
            f"{', reused' if each.reused else ''}",
            flush=True,
        )
    for each in (*ran.off, ran.cold, ran.again, ran.twin_off, ran.similar):
        if each.false_reason:
            print(f"    false: {each.false_reason}")


def main() -> None:
    """Measure by hand, run the studies, apply the rules, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="two workloads, tiny studies")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--commit", help="draws sizes; empty: as listed")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of epochs by hand")
    options = parser.parse_args()
    commit = frozen_at() if options.commit is None else options.commit
    chosen = judged(commit)
    if options.quick:
        chosen = {name: replace(WORKLOADS[name], devices=TWO, examples=EXAMPLES) for name in QUICK}
    if unknown := set(options.only) - set(chosen):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    names = [*(options.only or chosen)]
    forms: dict[str, Form] = {name: FORMS[name] for name in options.forms}
    if options.quick:
        forms = {"short": QUICK_FORM}
    this_run = Run("pipetune", baseline="no tuning, PipeTune's rules", whole=not options.only)
    drawn = [name for name in names if chosen[name].drawn]
    print(f"sizes drawn by {commit[:10] or 'none'}: {', '.join(drawn) or 'none'}")
    figures: dict[str, Any] = {}
    by_form: dict[str, dict[str, Any]] = {form: {} for form in forms}
    for name in names:
        workload = chosen[name]
        if why := absent(workload.code, workload) or absent(workload.twin, workload):
            print(f"{name}: skipped, its files are not here ({why})")
            continue
        rounds = 1 if options.quick else options.rounds
        hands = measured(workload, rounds, both=not options.quick)
        figures[name] = {"hand": _hand_figures(hands), "drawn": int(workload.drawn)}
        for form, of in forms.items():
            ran = studies(workload, of)
            by_form[form][name] = form_figures(ran, hands)
            figures[name][form] = by_form[form][name]
            said(f"{name}, {form}", hands, by_form[form][name], ran)
            figures[form] = verdict(by_form[form])
            this_run.write(options.json, figures)  # as far as it is: a workload takes minutes
    for form in forms:
        print(f"\n{form}:")
        for key, value in figures.get(form, {}).items():
            print(f"  {key:28}{value if isinstance(value, dict) else f'{value:8.3f}'}")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
