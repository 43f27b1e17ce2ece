"""Attacks by user code: an act, the contract that it is written for, and the moment.

Each runs in a study of its own, next to a harmless trial where the act leaves that one a chance.
The listed attacks have each broken something once; the others are drawn at random.
"""

from __future__ import annotations

import random
from functools import partial

import psutil
from penstock import Limits
from penstock.app.host.stopped import stopped_services
from penstock.scheduler.model.retry import KINDS as FAILURES

from .acts import ACTS, Act
from .site import EPOCH_TIMEOUT, OVERCOME, Field, words_of
from .verdict import Attack

KIND = "user code"
#: Moments at which code of each contract can act; a value has to be reported or returned.
MOMENTS = {
    "objective": ("import", "first", "middle", "last", "return"),
    "epochs": ("import", "first", "middle", "last", "return"),
    "torch": ("import", "first", "middle", "last"),
}
#: After its last report a trial of this contract is over, and what its code does then is its own.
SETTLED = ("last", "return")
#: A torch trainer takes seconds to start: not for what makes it start ten times.
NOT_TORCH = ("kills itself", "kills its group", "holds the lock in C", "fork without exit")

Triple = tuple[str, str, str]

LISTED: tuple[Triple, ...] = (
    ("objective", "middle", "pool, then segfault"),
    ("objective", "middle", "fork without exit"),
    ("torch", "middle", "pool, then segfault"),
    ("objective", "first", "fork lives"),
    ("epochs", "middle", "daemon"),
    ("objective", "first", "__str__ raises"),
    ("objective", "middle", "_exit(0)"),
    ("objective", "first", "100 MB of noise"),
    ("epochs", "first", "kills its group"),
    ("objective", "middle", "stops its parent"),
    ("epochs", "middle", "traces its parent"),
    ("objective", "middle", "stops all it can see"),
)
#: Act that also stops the services and every process that could continue them: the test must do it.
STOPS_ALL = "stops all it can see"


def attacks(rng: random.Random, n: int) -> list[Attack]:
    """The listed ones, and ``n`` drawn: no act twice, every contract among them."""
    drawn: list[Triple] = []
    acts = [act for act in ACTS if act not in {act for *_, act in LISTED}]
    rng.shuffle(acts)
    for i, act in enumerate(acts[:n]):
        contract = ("objective", "epochs", "objective", "epochs", "torch")[i % 5]
        if contract == "torch" and act in NOT_TORCH:
            contract = "epochs"
        moments = [m for m in MOMENTS[contract] if possible(contract, m, ACTS[act])]
        drawn.append((contract, rng.choice(moments), act))
    return [_attack(*triple) for triple in LISTED] + [_attack(*t, generated=True) for t in drawn]


def possible(contract: str, moment: str, act: Act) -> bool:
    """Return True if the act makes sense at that moment and ends: imports have no time limit."""
    if act.is_value:
        told = ("first", "middle", "return") if contract == "objective" else ("first", "middle")
        return moment in told
    return not (act.hangs and moment == "import")


def _attack(contract: str, moment: str, act: str, *, generated: bool = False) -> Attack:
    found = ACTS[act]
    ends = found.ends
    if contract != "objective" and moment in SETTLED and ends == "fails":
        ends = "either"
    expected = {
        "fails": f"the trial fails: /{found.words}/",
        "completes": "the trial completes, nothing is left behind",
        "either": f"the trial completes, or fails: /{found.words}/",
    }[ends]
    run = partial(_run, contract=contract, moment=moment, act=act, ends=ends)
    return Attack(f"{contract}, {moment}: {act}", KIND, expected, run, generated)


def _run(site: Field, *, contract: str, moment: str, act: str, ends: str) -> None:
    at_import = act if moment == "import" else ""
    template = "torch" if contract == "torch" else "function"
    module = site.user_module(template, at_import)
    code = module.Trained if contract == "torch" else getattr(module, contract)
    acts = [act] if at_import else [act, "nothing"]
    # A trial that shares a torch process begins again with it, and one that is stopped has to wait.
    slow = act == STOPS_ALL or (contract == "torch" and not ACTS[act].hangs)
    limits = Limits(epoch_timeout=20.0 if slow else EPOCH_TIMEOUT)
    study = site.submit(code, {"act": acts, "moment": [moment], "x": [0.25]}, limits=limits)
    if act == STOPS_ALL:
        scheduler = psutil.Process(site.pid("scheduler"))
        site.until(lambda: scheduler.status() == psutil.STATUS_STOPPED, "all are stopped")
        if (came := site.penstock("up"))[0]:
            site.found("failed", f"penstock up: {came[1][-200:]}")
    trials = site.over(study)
    site.until(lambda: not _traced(site), "what a tracer holds goes on", OVERCOME)
    _check_values(site, study, contract)
    for trial in trials:
        if trial.params["act"] == "nothing":
            # In the torch contract it shares the process, so it may have to begin again.
            if trial.state != "completed":
                site.found("failed", f"the trial beside it {trial.state}: {words_of(trial)}")
            continue
        if trial.state == "failed" and ends in ("fails", "either"):
            site.clear(words_of(trial), ACTS[act].words, "the trial")
            if trial.failure_kind not in FAILURES:
                site.found("failed", f"of no known kind: {trial.failure_kind}")
        elif trial.state != "completed" or ends == "fails":
            site.found("failed", f"{trial.state}, {words_of(trial)}")
        if trial.failure_message and len(trial.failure_message) > 10_000:
            site.found("unclear", f"a message of {len(trial.failure_message)} characters")
    status, said = site.penstock("status", study)
    if status or "\x1b]" in said or "\x1b[2J" in said:
        site.found("unclear", f"penstock status: {status}, {said[:200]!r}")


def _traced(site: Field) -> bool:
    """Return whether a tracer holds a service, which no user's request can continue."""
    return any(stop.tracer for *_, stop in stopped_services(site.settings.run))


def _check_values(site: Field, study: str, contract: str) -> None:
    if contract != "torch":
        site.values_right(study)
        return
    hashes = {}
    for row in site.reader.epochs(study):
        if row.value != 25.0 or (row.trial, row.epoch) in hashes:
            site.found("wrong", f"{row.trial} epoch {row.epoch}: {row.value}")
        hashes[row.trial, row.epoch] = row.state_hash
