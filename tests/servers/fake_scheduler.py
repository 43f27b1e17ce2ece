"""A scheduler that invents results: real broker, real ledger, no training. For tests of clients."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace

from penstock.app.broker import protocol, server
from penstock.app.broker.transport import RedisTransport
from penstock.app.ledger.codec import spec_from_json
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.writes import Batch
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.scheduler.model.decisions import Member
from penstock.scheduler.model.events import StudySubmitted, Suggested, Tick, TrialWritten
from penstock.scheduler.model.study import StudyRecord, trial_id
from penstock.scheduler.model.trial import AcceptedEpoch, Failure, Trial, TrialState
from penstock.wire.messages import Forged, check_seal

KEY = b"k" * 32


class FakeScheduler:
    """Answers commands on a thread; each trial's first parameter is its value in every epoch.

    ``deaf`` commands are ignored before the first one is heard. While ``hold`` is set a study goes
    no further than its first trial, which runs. ``fate`` maps trial numbers to final states other
    than completed; all trials with such a state have one epoch. ``writes`` maps trial numbers to
    what their objectives write.
    """

    def __init__(self, settings, *, deaf=0, fate=None, writes=None):
        self.commands = []
        self.hold = threading.Event()
        self.resume = threading.Event()
        self._settings = settings
        self._deaf = deaf
        self._fate = fate or {}
        self._writes = writes or {}
        self._over = threading.Event()
        self._ledger = None
        self._records = {}
        self._seq = 0
        self._thread = threading.Thread(target=self._serve)
        self._jobs = []
        self._begun = set()

    def __enter__(self):
        server.start(self._settings)
        RedisTransport(server.broker_url(self._settings), KEY).open()
        SqlLedger.open(self._settings.ledger_url).close()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.resume.set()
        self._thread.join()

    def _serve(self):
        self._ledger = SqlLedger.open(self._settings.ledger_url)
        client = server.connect(self._settings)
        after = "0"
        while not self._over.is_set():
            found = client.xread({protocol.COMMANDS: after}, count=1, block=20)
            found = list(found.items()) if isinstance(found, dict) else found
            for _, entries in found or ():
                batch = entries[0] if isinstance(entries[0][0], list) else entries
                after = batch[-1][0]
                for _, fields in batch:
                    self._hear(client, fields)
            self._work()
        self._ledger.close()
        client.close()

    def _hear(self, client, fields):
        try:
            check_seal(KEY, fields["p"], fields["s"])
        except Forged:
            return
        body = json.loads(fields["p"])
        self.commands.append(body)
        if self._deaf:
            self._deaf -= 1
            return
        reply = self._ledger.reply_to(body["id"])
        if reply is None:
            reply = json.dumps(self._obey(body))
            self._ledger.commit(Batch(commands=[(body["id"], reply)]))
        client.lpush(protocol.PREFIX + protocol.reply_name(body["id"]), reply)

    def _obey(self, body):
        if body["kind"] == "submit":
            spec = spec_from_json(json.dumps(body["study"]))
            if any(r.spec.name == spec.name for r in self._records.values()):
                return {"ok": False, "type": "UsageError", "error": "the name is taken"}
            self._record(StudyRecord(spec, "running", time.time()))
            self._jobs.append((spec, [tuple(p.items()) for p in body["enqueued"]]))
        elif body["kind"] in ("cancel", "stop"):
            self._jobs = [job for job in self._jobs if job[0].id != body["study"]]
            record = self._records[body["study"]]
            if record.finished_at is not None:
                return {"ok": False, "type": "UsageError", "error": "the study is over already"}
            if body["kind"] == "stop":  # its first trial, if it has begun, goes on to its end
                self._trial(record.spec, 0, (("x", 0.0),))
            status = "cancelled" if body["kind"] == "cancel" else "complete"
            self._record(replace(record, status=status, finished_at=time.time()))
        elif body["kind"] == "extend":
            record = self._records[body["study"]]
            n_trials = body["to"] or record.spec.n_trials + body["by"]
            self._record(replace(record, spec=replace(record.spec, n_trials=n_trials)))
            return {"ok": True, "n_trials": n_trials}
        elif body["kind"] == "break":
            return {"ok": False, "type": "BackendError", "error": "out of order"}
        return {"ok": True}

    def _record(self, record):
        known = record.spec.id in self._records
        submitted = StudySubmitted(at=record.created_at, study=record.spec)
        self._records[record.spec.id] = record
        self._commit([Tick(at=time.time()) if known else submitted], studies=[record])

    def _commit(self, events, **rows):
        """With an event at least: by events readers see that something has happened."""
        numbered = [(self._seq + k, event) for k, event in enumerate(events, start=1)]
        self._seq += len(numbered)
        self._ledger.commit(Batch(events=numbered, **rows))

    def _work(self):
        if not self._jobs:
            return
        if self.hold.is_set() and not self.resume.is_set():
            self._begin(self._jobs[-1][0])
            return
        spec, enqueued = self._jobs.pop()
        params, *_ = SamplerHost().ask(spec, 0, spec.n_trials, [], enqueued)
        for number, chosen in enumerate(params):
            self._trial(spec, number, chosen or (("x", float(number)),))
        status = (
            "complete" if TrialState.COMPLETED in map(self._state, range(len(params))) else "failed"
        )
        record = self._records[spec.id]
        self._record(replace(record, status=status, finished_at=time.time()))

    def _state(self, number):
        return self._fate.get(number, TrialState.COMPLETED)

    def _trial(self, spec, number, params):
        state, at = self._state(number), time.time()
        epochs = 0 if state is TrialState.FAILED else 1
        if state is TrialState.COMPLETED:
            epochs = spec.strategy.max_epochs or 1
        value = next((float(v) for _, v in params if isinstance(v, (int, float))), math.nan)
        name = trial_id(spec.id, number)
        trial = Trial(
            id=name,
            study=spec.id,
            number=number,
            params=params,
            created_at=at,
            state=state,
            epoch=epochs,
            target=epochs,
            value=value if epochs else None,
            members=(Member("cpu.here.0", 0),),
            finished_at=at + 1.5,
            failure=None if epochs else Failure("exception", "ValueError: no", "Traceback ..."),
        )
        events = [Tick(at=at)]
        if number in self._writes:
            events.append(TrialWritten(at=at, trial=name, fence=1, writing=self._writes[number]))
        if spec.space is None:
            text = '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}'  # noqa: E501 - as Optuna writes it
            for key, drawn in params:
                events.append(
                    Suggested(at=at, trial=name, name=key, value=drawn, distribution=text)
                )
        self._commit(
            events,
            trials=[trial],
            epochs=[
                AcceptedEpoch(
                    trial=name,
                    epoch=epoch,
                    value=value,
                    metrics=((spec.metric, value),),
                    state_hash="h",
                    signature="s",
                    seconds=0.1,
                    device="cpu.here.0",
                    slot=0,
                    fence=1,
                    at=at,
                )
                for epoch in range(1, epochs + 1)
            ],
        )

    def _begin(self, spec):
        """Show the first trial of a study at work, once."""
        if spec.id in self._begun:
            return
        self._begun.add(spec.id)
        name, at = trial_id(spec.id, 0), time.time()
        trial = Trial(
            id=name,
            study=spec.id,
            number=0,
            params=(("x", 0.0),),
            created_at=at,
            dispatched_at=at,
            state=TrialState.RUNNING,
            members=(Member("cpu.here.0", 0),),
        )
        self._commit([Tick(at=at)], trials=[trial])
