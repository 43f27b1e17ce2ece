"""Policies of a user's, good and bad, run by name in a process of their own."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from penstock.scheduler.model.snapshot import Plan, Snapshot


def youngest_first(snapshot: Snapshot) -> Plan:
    print("what a policy prints is no answer")
    return Plan(tuple(each.trial for each in reversed(snapshot.waiting)))


def across(snapshot: Snapshot) -> Plan:
    """The last study first; who runs for another one gives way."""
    last = max(each.arrived for each in (*snapshot.running, *snapshot.waiting))
    order = sorted(snapshot.waiting, key=lambda each: -each.arrived)
    hold = tuple(each.trial for each in snapshot.running if each.arrived < last)
    return Plan(tuple(each.trial for each in order), hold=hold)


across.cross_study = True


def raises(snapshot: Snapshot) -> Plan:
    raise ZeroDivisionError("no devices")


def forgets(snapshot: Snapshot) -> Plan:
    return Plan(tuple(each.trial for each in snapshot.waiting[1:]))


def invents(snapshot: Snapshot) -> Plan:
    return Plan((*(each.trial for each in snapshot.waiting), "nobody-0001"))


def invents_widths(snapshot: Snapshot) -> Plan:
    return Plan(tuple(each.trial for each in snapshot.waiting), {"nobody-0001": 1})


def negative(snapshot: Snapshot) -> Plan:
    both = (*snapshot.running, *snapshot.waiting)
    order = tuple(each.trial for each in snapshot.waiting)
    return Plan(order, {each.trial: -1 for each in both})


def too_wide(snapshot: Snapshot) -> Plan:
    both = (*snapshot.running, *snapshot.waiting)
    order = tuple(each.trial for each in snapshot.waiting)
    return Plan(order, {each.trial: each.widest + 1 for each in both})


def no_plan(snapshot: Snapshot) -> object:
    return {"order": []}


def text(snapshot: Snapshot) -> Plan:
    return Plan(tuple(each.trial for each in snapshot.waiting), {"a": "wide"})  # type: ignore[dict-item]  # wrong on purpose


def spins(snapshot: Snapshot) -> Plan:
    while True:
        pass


def sleeps(snapshot: Snapshot) -> Plan:
    time.sleep(60)
    return Plan()


def ends(snapshot: Snapshot) -> Plan:
    os._exit(3)


def babbles(snapshot: Snapshot) -> Plan:
    for pipe in range(3, 10):  # one of them is where answers go
        with suppress(OSError):
            os.write(pipe, b"nonsense\n")
    return Plan()


constant = 3
