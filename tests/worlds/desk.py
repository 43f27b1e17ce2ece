"""A simulated transport that also hands over clients' commands, and keeps what it answers."""

from __future__ import annotations

import json

from penstock.app.common.ports import Message
from penstock.app.ledger.codec import spec_to_json
from worlds.plain_devices import PlainDevices


class Curve:
    """A little better with every epoch."""

    def slowdown(self, at_work):
        return 1.0

    def resize(self, dispatch, spec):
        return 0.0

    def steps(self, dispatch, spec):
        return 200

    def epoch(self, dispatch, spec, epoch):
        return 0.3, ((dispatch.number * 7) % 5) / 5 + epoch / 100


class Desk(PlainDevices):
    """A transport that also hands over what a client sent, and keeps what it was answered."""

    inbox: list
    answered: list
    dropped: list

    def receive(self, timeout):
        sent, self.inbox = self.inbox, []
        return sent or super().receive(timeout)

    def carry_out(self, effects):
        self.answered.extend(effects.answers)
        super().carry_out(effects)

    def drop(self, message, why):
        self.dropped.append((message, why))


def command(number, kind, /, **body):
    return Message(f"{number}-0", "commands", {"id": f"c{number}", "kind": kind, **body})


def submit(number, study):
    return command(number, "submit", study=json.loads(spec_to_json(study)))


def said(desk):
    return [(where, json.loads(text)) for where, text in desk.answered]
