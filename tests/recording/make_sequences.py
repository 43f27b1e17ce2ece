"""Makes the recorded event sequences: random worlds around the engine, written down.

In the folder ``tests``:

    python -m recording.make_sequences [--again] [THEME ...]

Each *theme* is a corner of what can happen, with its kinds of studies and its weights of actions;
each sequence is one random world of it. The world answers what the engine asks, trains what it
dispatches, and at times does what nobody should: reports twice, late, or with other bits.

With ``--again`` the recorded events stay, and only the digests are those of the present code. That
is for a change of behaviour on purpose (tests/recorded/README.md).

The draws come from ``random.Random`` with a seed of text and not from Hypothesis. A sequence here
has hundreds of steps that depend upon each other, where Hypothesis runs into its limit of entropy,
and what it draws from one seed changes with its version. What is kept are the events.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any

from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_to_json
from penstock.base.footprint import Footprint
from penstock.extensions.memory.events import FootprintReported
from penstock.extensions.prefixes.between import earlier_trial, group_of
from penstock.extensions.prefixes.chain import chain_of, has_prefixes, is_checked, link_at
from penstock.extensions.prefixes.state import OfTrial, known_of
from penstock.extensions.system_tuning.asked.decisions import (
    Advised,
    AskConfigs,
    ConfigsProposed,
    Consult,
)
from penstock.extensions.system_tuning.races.measured import Profiled, Window, WindowsMeasured
from penstock.profiling.costs.width_window import widths_up_to
from penstock.profiling.devices.device import Device
from penstock.profiling.knobs.knobs import SystemConfig
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model import events as happened
from penstock.scheduler.model.decisions import (
    Ask,
    AskPlan,
    Cut,
    Dispatch,
    Member,
    Parent,
)
from penstock.scheduler.model.finished import (
    EarlierTrial,
    FinishedStudy,
    FinishedTrial,
    PastTrial,
)
from penstock.scheduler.model.retry import KINDS
from penstock.scheduler.model.snapshot import Plan, Snapshot, WindowPlan
from penstock.scheduler.model.study import DELETED, OVER, Code, StudyRecord, StudySpec, trial_id
from penstock.scheduler.model.trial import AcceptedEpoch, Failure, Trial, TrialState
from penstock.scheduler.outlook.drain_choice import choose_devices, drainable
from recording.engine_record import FOLDER, Recorder, Sequence, read
from recording.sequence_themes import PLUGIN, THEMES, WEIGHTS
from worlds.drive_world import spec

#: Events between two checkpoints, and sequences of a theme that hold a snapshot.
CHECKPOINT_EVERY = 40
SNAPSHOTS = 3
#: Bytes that a process has before a trial.
BASE = 2 * 10**8
MACHINE = "cpu.AVX2;torch2;deterministic"


def probe_of(dispatch: Dispatch) -> tuple[SystemConfig, ...]:
    """The system configurations that the segment is to measure."""
    found: tuple[SystemConfig, ...] = dispatch.ext.get("system_tuning", {}).get("probe", ())
    return found


class World:
    """A random world of a theme around one engine, which writes down all that happens to it."""

    def __init__(self, name: str, seed: int) -> None:
        self.theme = THEMES[name]
        self.seed = f"{name}/{seed}"
        self.rng = random.Random(self.seed)
        #: True if many trials have the same values.
        self.ties = seed % 2 == 0
        self.recorder = Recorder()
        self.limit = self.rng.randint(*self.theme.events)
        self.at = 100.0
        self.events: list[tuple[str, str]] = []
        self.digests: list[str] = []
        self.checkpoints: list[tuple[int, str, str, str]] = []
        self.snapshot: tuple[int, str] | None = None
        self.open: dict[int, Dispatch] = {}
        self.sent: list[Dispatch] = []
        self.ends: dict[int, float] = {}
        self.cut: set[int] = set()
        self.questions: list[Any] = []
        self.specs: dict[str, StudySpec] = {}
        self.trials: dict[str, Trial] = {}
        self.trained: dict[str, OfTrial] = {}
        self.durables: dict[tuple[str, int], Parent] = {}
        self.odd_machines: set[str] = set()
        weights = WEIGHTS | self.theme.weights
        self.actions = [getattr(self, action) for action in weights]
        self.weights = list(weights.values())

    @property
    def state(self) -> Any:
        return self.recorder.engine.state

    # -- writing down ----------------------------------------------------------------------------

    def run(self, *, keep_snapshot: bool) -> Sequence:
        """All of it, from the first device on."""
        if self.theme.prices:
            self.send(happened.PricesChosen, prices=self.theme.prices)
        for number in range(self.rng.randint(1, self.theme.devices)):
            self.join(number)
        self.choose_policy()
        self.submit()
        while len(self.events) < self.limit:
            self.rng.choices(self.actions, self.weights)[0]()
            if keep_snapshot and self.snapshot is None and len(self.events) > self.limit // 2:
                self.snapshot = len(self.events), state_to_json(self.state)
        if not self.checkpoints or self.checkpoints[-1][0] < len(self.events):
            self.check()
        return Sequence(
            self.seed, self.events, "".join(self.digests), self.checkpoints, self.snapshot
        )

    def check(self) -> None:
        state, sentences, views = self.recorder.checkpoint()
        self.checkpoints.append((len(self.events), state, sentences, views))

    def send(self, kind: type[happened.Event], /, **fields: Any) -> None:
        """Have the engine handle an event, as it is when it was read from a ledger."""
        text = encode(kind(at=self.at, **fields))
        self.events.append(text)
        self._keep_trials(decode(*text))
        self.digests.append(self.recorder.handle(*text))
        if len(self.events) % CHECKPOINT_EVERY == 0:
            self.check()
        for decision in self.recorder.decisions:
            if isinstance(decision, Dispatch):
                self.open[decision.segment.fence] = decision
                self.sent.append(decision)
                self.ends[decision.segment.fence] = self.at + self.seconds(decision)
            elif isinstance(decision, Cut):
                self.cut.add(decision.fence)
                if self.open[decision.fence].segment.widths:
                    self.ends[decision.fence] = self.at
            elif isinstance(decision, Ask | AskPlan | AskConfigs | Consult):
                self.questions.append(decision)
        self.open = {f: d for f, d in self.open.items() if f in self.state.attempts}
        self._note_trials()
        if self.questions and self.rng.random() < 0.9:
            self.answer()

    def _keep_trials(self, event: happened.Event) -> None:
        if isinstance(event, happened.StudyImported):
            self.specs.setdefault(event.record.spec.id, event.record.spec)

    def _note_trials(self) -> None:
        """As the ledger does: the trials of studies that are over, and what is durable of them."""
        self.trials |= self.state.trials
        for own in known_of(self.state).studies.values():
            self.trained |= own.trials
        for trial in self.state.trials.values():
            for parent in trial.parents:
                self.durables[trial.id, parent.epoch] = parent
        for study in self.state.studies.values():
            self.specs[study.spec.id] = study.spec

    # -- what the world is like ------------------------------------------------------------------

    def seconds(self, dispatch: Dispatch) -> float:
        """Return the next epoch's seconds, by trial, width, neighbours, configuration and luck."""
        members = dispatch.segment.members
        base = self.theme.seconds * (1 + (dispatch.number % 5) / 4)
        beside = len(self.state.attempts_on(members[0].device)) if self._there(members) else 1
        stretch = self.theme.stretch[min(beside, len(self.theme.stretch)) - 1]
        turned = 0.8 if dict(dispatch.system).get("threads") == 1 else 1.0
        luck = self.rng.choice([1.0, 1.0, 1.02, 0.98, 1.1, 1.6])
        if dispatch.segment.widths:
            return round(0.1 * base * luck, 4)
        alone = self.time_on(dispatch, len(members))
        return round(base * alone * stretch * turned * luck, 4)

    def time_on(self, dispatch: Dispatch, width: int) -> float:
        """The part of its time on one device that a trial takes: one in four gains nothing."""
        return 1.0 if dispatch.number % 4 == 3 else width**-0.8

    def _there(self, members: tuple[Member, ...]) -> bool:
        return all(member.device in self.state.devices for member in members)

    def signature(self, dispatch: Dispatch) -> str:
        turned = dict(dispatch.system).get("threads")
        threads = f"threads{turned}of4" if turned else "threads4"
        layout = dict(dispatch.system).get("memory_format", "")
        kernels = f"solo.{layout}" if layout else "solo"
        odd = dispatch.segment.members[0].device in self.odd_machines
        machine = MACHINE.replace("AVX2", "AVX512") if odd else MACHINE
        return f"S{dispatch.shards};batch64;{threads};{kernels};float32;{machine}"

    def bits(self, name: str, epoch: int) -> str:
        """Return a trial's state: trials with a common prefix have it in common."""
        trial = self.trials.get(name)
        if self.theme.common and trial is not None and has_prefixes(self.specs[trial.study]):
            link = link_at(chain_of(self.specs[trial.study], trial), epoch)
            name = name if link is None else link.key
        return f"{name}@{epoch}"

    def metrics(self, dispatch: Dispatch, epoch: int) -> tuple[tuple[str, float], ...]:
        name, _, _ = self.bits(dispatch.segment.trial, epoch).partition("@")
        number = dispatch.number if name == dispatch.segment.trial else int(name[:6], 16)
        quality = (number * 7 % 11) / 11
        value = quality * (1 - 0.7**epoch) + (number + epoch) % 3 / 50
        value = round(value, 1 if self.ties else 4)
        return (
            ("v", value),
            ("w", round(1 - value / 2, 4)),
            ("c", (epoch + number) % 4 / 4),
        )

    def some(self) -> Dispatch | None:
        """Any segment that was ever sent, mostly one that is open or one of the last."""
        if not self.sent:
            return None
        if self.open and self.rng.random() < 0.6:
            return self.rng.choice(list(self.open.values()))
        return self.rng.choice(self.sent[-12:] if self.rng.random() < 0.8 else self.sent)

    def named(self) -> str:
        """The id of a study, at times of one that is not there."""
        return self.rng.choice([*self.specs, "nobody"])

    def asked_studies(self) -> list[str]:
        return [s.spec.id for s in self.state.studies.values() if s.spec.contract == "ask"]

    # -- training --------------------------------------------------------------------------------

    def train(self) -> None:
        """The attempt whose epoch ends first reports it; at times another one is faster."""
        if not self.open:
            return
        order = sorted(self.open, key=lambda fence: (self.ends[fence], fence))
        fence = order[0] if self.rng.random() < 0.9 else self.rng.choice(order)
        if self.open[fence].segment.widths:
            self.end_window(self.open[fence])
        else:
            self.report(self.open[fence])

    def end_window(self, dispatch: Dispatch) -> None:
        """A width window ends: mostly with an answer, at times with one that is sent twice."""
        self.at = round(max(self.at + 0.001, self.ends[dispatch.segment.fence]), 4)
        luck = self.rng.random()
        if luck < 0.06:
            self.lose_attempt(dispatch)
        elif luck < 0.09:
            self.fail_attempt(dispatch)
        else:
            self.answer_window(dispatch)
            if luck < 0.15:
                self.answer_window(dispatch)

    def answer_window(self, dispatch: Dispatch, **changes: Any) -> None:
        """Send a window's result: all widths, or fewer if it was cut or its members never met."""
        widths = dispatch.segment.widths
        if dispatch.segment.fence in self.cut or self.rng.random() < 0.2:
            widths = widths[: self.rng.randint(0, len(widths))]
        step = self.theme.seconds * (1 + (dispatch.number % 5) / 4) / 100
        luck = self.rng.choice([1.0, 1.0, 0.98, 1.03])
        began = len(widths) > 1 or self.rng.random() < 0.5
        fields = {
            "cause": dispatch.id,
            "trial": dispatch.segment.trial,
            "fence": dispatch.segment.fence,
            "seconds": tuple(
                (w, round(step * self.time_on(dispatch, w) * luck, 6)) for w in widths
            ),
            "steps": 90,
            "meeting": self.rng.choice([0.02, 0.05, 0.4]) if began else 0.0,
            "met": len(widths) > 1,
        }
        self.send(happened.WidthsMeasured, **fields | changes)

    def report(self, dispatch: Dispatch, **changes: Any) -> None:
        segment = dispatch.segment
        before = self.state.attempts[segment.fence].began if segment.fence in self.open else self.at
        self.at = round(max(self.at + 0.001, self.ends[segment.fence]), 4)
        trial = self.state.trials.get(segment.trial)
        epoch = segment.first if trial is None else trial.epoch + 1
        name = f"{segment.trial}@{epoch}"
        durable = dispatch.durable or self.rng.random() < 0.15
        self.ends[segment.fence] = self.at + self.seconds(dispatch)
        fields = {
            "cause": dispatch.id,
            "trial": segment.trial,
            "fence": segment.fence,
            "epoch": epoch,
            "metrics": self.metrics(dispatch, epoch),
            "state_hash": self.bits(segment.trial, epoch),
            "signature": self.signature(dispatch),
            "seconds": round(max(0.01, self.at - before), 4),
            "closes": epoch >= segment.last or segment.fence in self.cut or self.is_over(dispatch),
            "holder": f"h{segment.fence % 3}",
            "uri": name if durable else "",
            "claimed": self.rng.choice([0.0, 0.4]),
            "memory": self.rng.choice([0, 10**8]),
            "joules": self.rng.choice([None, None, 3.5]),
        }
        if self.theme.memory:
            fields["memory"] = self.rng.choice([0, self.process(dispatch.number)])
            fields["together"] = self.rng.choice([1, 1, 1, 3, 0])
            if not fields["together"]:
                readers, alone = self.rng.choice([(0, 0.0), (1, 0.0), (3, 1.2)])
                fields |= {"readers": readers, "alone": alone}
            company = ((2, 0.6), (4, 0.4), (8, 1.1))
            fields["company"] = self.rng.choice([(), (), company])
        self.send(happened.EpochReported, **fields | changes)

    def process(self, number: int) -> int:
        """Return what the process of a trial needs (bytes)."""
        return round((0.5 + number * 5 % 7 / 2) * 10**9)

    def footprint(self) -> None:
        """An attempt says what memory its own trial needs, or one that waits."""
        if (dispatch := self.some()) is None:
            return
        study = dispatch.study
        own = [*self.state.ready, dispatch.segment.trial]
        of = self.rng.choice([name for name in own if name.startswith(study)] or own)
        base = self.rng.choice([0, BASE, BASE, BASE])
        peak = round((self.process(int(of.rpartition("-")[2])) - BASE) / 2)
        peak = round(peak * self.rng.choice([1.0, 1.0, 0.9, 1.2]))
        failed = self.rng.choice([""] * 9 + ["aten.nonzero"])
        found = Footprint(0, 0, 0) if failed else Footprint(peak // 4, peak - peak // 4, peak)
        self.send(
            FootprintReported,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            of=of,
            footprint=found,
            measured=not failed and of == dispatch.segment.trial and self.rng.random() < 0.5,
            base=base,
            recurrent=self.rng.random() < 0.1,
            failed=failed,
        )

    def describe(self) -> None:
        """An attempt has counted its own trial's model, or another one's of its study."""
        from penstock.extensions.nas.events import Described
        from penstock.extensions.nas.models.architecture import Architecture

        if (dispatch := self.some()) is None:
            return
        named = [each["trial"] for each in dispatch.ext.get("nas", {}).get("count", ())]
        mine = [each for each in self.trials if each.startswith(f"{dispatch.study}-")]
        own = dispatch.segment.trial
        of = self.rng.choice([own, own, *named, *named, self.rng.choice([*mine, own])])
        params = dict(self.trials[of].params) if of in self.trials else {}
        amount = int(params.get("depth", 1)) * {"mlp": 300, "conv": 4000}.get(params.get("op"), 20)
        counted = self.rng.random() < 0.9
        found = Architecture(amount, 50 * amount, 7 * amount, 6 + amount % 11)
        self.send(
            Described,
            trial=own,
            fence=dispatch.segment.fence,
            of=of,
            architecture=found if counted else Architecture(amount, 0, 0, 0),
            choices=self.rng.choice([("depth", "op"), ("depth", "op"), ("op",)]),
        )

    def is_over(self, dispatch: Dispatch) -> bool:
        """Return True if a segment closes by itself, because a limit of its study is near."""
        return dispatch.until is not None and self.at >= dispatch.until

    def train_oddly(self) -> None:
        """A report that is late, doubled, ahead, under another signature or with other bits."""
        if (dispatch := self.some()) is None:
            return
        segment = dispatch.segment
        if segment.widths and self.rng.random() < 0.7:
            odd = self.rng.choice([(), ((2, 0.01),), ((1, 0.01), (9, 0.01))])
            self.answer_window(dispatch, **self.rng.choice([{}, {"seconds": odd}]))
            return
        epoch = (
            self.rng.randint(1, segment.last + 1) if segment.last < 99 else self.rng.randint(1, 9)
        )
        odd = self.rng.choice(
            ["as it is", "epoch", "bits", "signature", "machine", "metric", "closes"]
        )
        changes: dict[str, Any] = {}
        if odd == "epoch":
            changes = {"epoch": epoch, "state_hash": self.bits(segment.trial, epoch)}
        elif odd == "bits" and segment.fence not in self.open:
            changes = {"epoch": epoch, "state_hash": "other bits"}
        elif odd == "signature":
            changes = {"signature": self.signature(dispatch).replace("solo", "gang")}
        elif odd == "machine":
            changes = {"signature": self.signature(dispatch).replace("torch2", "torch3")}
        elif odd == "metric":
            changes = {"metrics": (("accuracy", 0.5),)}
        elif odd == "closes":
            changes = {"closes": True}
        self.report(dispatch, **changes)

    def differ(self) -> None:
        """A trial that trains its epochs as a check comes out with other bits."""
        checks = [d for d in self.open.values() if self._is_check(d) and not d.segment.widths]
        if checks:
            self.report(self.rng.choice(checks), state_hash="other bits")

    def _is_check(self, dispatch: Dispatch) -> bool:
        return is_checked(self.specs[dispatch.study], self.trials[dispatch.segment.trial])

    def lose(self) -> None:
        """An attempt is lost; at times so are those that its device gets next."""
        if (dispatch := self.some()) is None:
            return
        self.lose_attempt(dispatch)
        device, times = dispatch.segment.members[0].device, self.rng.choice([0, 0, 0, 3, 5])
        for _ in range(times):
            there = [d for d in self.open.values() if d.segment.members[0].device == device]
            if there:
                self.lose_attempt(there[0])

    def lose_attempt(self, dispatch: Dispatch) -> None:
        segment = dispatch.segment
        own = self.signature(dispatch)
        other = own.replace("torch2", "torch3")
        signature, expected = self.rng.choice(
            [("", ""), ("", ""), ("", ""), (other, own), (own, other)]
        )
        ranks = self.rng.sample(range(len(segment.members) + 1), self.rng.randint(0, 1))
        self.send(
            happened.AttemptLost,
            cause=dispatch.id,
            trial=segment.trial,
            fence=segment.fence,
            reason=self.rng.choice(["its lease ran out", "its worker is gone"]),
            refused=self.rng.random() < 0.1,
            ranks=tuple(ranks),
            signature=signature,
            expected=expected,
        )

    def fail(self) -> None:
        if (dispatch := self.some()) is not None:
            self.fail_attempt(dispatch)

    def fail_attempt(self, dispatch: Dispatch) -> None:
        kinds = (
            sorted(KINDS) if self.rng.random() < 0.3 else ["exception", "died", "memory", "system"]
        )
        if self.theme.memory:
            kinds = ["memory", "memory", "died", "exception"]
        self.send(
            happened.AttemptFailed,
            cause=dispatch.id,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            kind=self.rng.choice(kinds),
            message=self.rng.choice(["it raised", "killed by signal 9", "signal 11"]),
            traceback="Traceback",
            trying=self.rng.choice([(), probe_of(dispatch)[0] if probe_of(dispatch) else ()]),
        )

    def end_early(self) -> None:
        """An objective returns, or prunes its trial."""
        if (dispatch := self.some()) is None:
            return
        study = self.specs[dispatch.study]
        if study.contract != "objective" and self.rng.random() < 0.7:
            return
        value = self.rng.choice([None, 0.3, 0.7, 0.7])
        right = (0.5,) * len(study.further)
        self.send(
            happened.TrialReturned,
            cause=dispatch.id,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            value=value,
            further=self.rng.choice([right, right, right, (1.0, 2.0)]),
            constraints=self.rng.choice([(), (("c", -0.5),), (("c", 0.5),)]),
            pruned=self.rng.random() < 0.2,
            unasked=self.rng.choice([(), (), ("x",)]),
        )

    def suggest(self) -> None:
        if (dispatch := self.some()) is None:
            return
        self.send(
            happened.Suggested,
            trial=dispatch.segment.trial,
            name=self.rng.choice(["depth", "width", "x"]),
            value=self.rng.choice([1, 2.5, "relu", True, None]),
            distribution="{}",
        )

    def durable(self) -> None:
        """A state is in the store; mostly one that was accepted."""
        if (dispatch := self.some()) is None:
            return
        name = dispatch.segment.trial
        trial = self.trials.get(name)
        newest = trial.epoch if trial is not None else 1
        epoch = newest if self.rng.random() < 0.7 else self.rng.randint(1, max(1, newest))
        accepted = self.bits(name, epoch)
        if self.theme.common and trial is not None:
            accepted = trial.hashes.get(epoch, accepted)
        bits = accepted if self.rng.random() < 0.97 else "other bits"
        self.send(
            happened.Durable, trial=name, epoch=epoch, state_hash=bits, uri=f"file:{name}@{epoch}"
        )

    def undurable(self) -> None:
        if (dispatch := self.some()) is not None:
            reason = self.rng.choice(["the disk is full", "the store is away"])
            self.send(happened.Undurable, trial=dispatch.segment.trial, reason=reason)

    def replayed(self) -> None:
        if (dispatch := self.some()) is not None:
            segment = dispatch.segment
            self.send(
                happened.Replayed,
                trial=segment.trial,
                fence=segment.fence,
                first=1,
                last=segment.first,
            )

    # -- system parameters -----------------------------------------------------------------------

    def measure(self) -> None:
        """An attempt reports the windows that it was asked for."""
        probing = [dispatch for dispatch in self.open.values() if probe_of(dispatch)]
        if not probing:
            return
        dispatch = self.rng.choice(probing)
        windows = tuple(
            Window(config, self._ratio(config), 0.001, self.rng.choice([None, 0.9, 1.1]))
            for config in probe_of(dispatch)
            for _ in range(self.rng.choice([1, 4]))
        )
        failed = ((probe_of(dispatch)[-1], "not here"),) if self.rng.random() < 0.1 else ()
        self.send(
            WindowsMeasured,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            windows=windows if self.rng.random() < 0.95 else (),
            failed=failed,
        )

    def _ratio(self, config: Any) -> float:
        gains = {"threads": 0.7, "memory_format": 1.1, "loader_workers": 0.95}
        product = 1.0
        for name, value in config:
            product *= gains.get(name, 1.0) ** (1.0 if value in (1, "channels_last") else 0.5)
        return round(product * self.rng.choice([1.0, 1.01, 0.99]), 4)

    def profile(self) -> None:
        if (dispatch := self.some()) is not None:
            self.send(
                Profiled,
                trial=dispatch.segment.trial,
                fence=dispatch.segment.fence,
                epoch=dispatch.segment.first,
                values=(("samples_s", 100.0), ("llc_miss", 0.2)),
            )

    # -- answers ---------------------------------------------------------------------------------

    def answer(self) -> None:
        """The oldest question is answered."""
        if not self.questions:
            return
        question = self.questions.pop(0)
        if isinstance(question, Ask):
            self._propose(question)
        elif isinstance(question, AskPlan):
            self._plan(question)
        elif isinstance(question, Consult):
            config = self.rng.choice([(), (("threads", 1),), (("loader_workers", 2),)])
            self.send(
                Advised,
                cause=question.id,
                workload=question.workload,
                config=config,
                why="alike",
            )
        else:
            found = [(name, value) for name, values in question.choices for value in values]
            drawn = self.rng.sample(found, min(len(found), self.rng.randint(0, 3)))
            self.send(
                ConfigsProposed,
                cause=question.id,
                workload=question.workload,
                configs=tuple((pair,) for pair in drawn),
            )

    def answer_oddly(self) -> None:
        """An answer to nothing, or an answer again."""
        kind = self.rng.choice(
            ["Proposed", "Planned", "PolicyFailed", "Advised", "ConfigsProposed"]
        )
        if kind == "Proposed":
            self.send(happened.Proposed, cause="1.0", study=self.named(), index=0, trials=())
        elif kind == "Planned":
            self.send(happened.Planned, cause="1.0", plans=(Plan(),))
        elif kind == "PolicyFailed":
            self.send(happened.PolicyFailed, cause="1.0", reason="it raised", policy=PLUGIN)
        elif kind == "Advised":
            self.send(Advised, cause="1.0", workload="w", config=(), why="")
        else:
            self.send(ConfigsProposed, cause="1.0", workload="w", configs=())

    def _propose(self, ask: Ask) -> None:
        if self.rng.random() < 0.01:
            reason = "its sampler raised"
            self.send(happened.StudyFailed, cause=ask.id, study=ask.study, reason=reason)
            return
        n = ask.n if self.rng.random() < 0.95 or ask.fork else self.rng.randint(0, ask.n)
        wished = [dict(params) for params in ask.enqueued] + [{}] * ask.n
        trials = []
        for place in range(n):
            drawn = {"x": self.rng.randint(0, 9), "batch_size": self.rng.choice([32, 64, 256])}
            if self.theme.models:
                drawn = {
                    "depth": self.rng.randint(1, 4),
                    "op": self.rng.choice(["mlp", "conv", "none"]),
                    "lr": self.rng.choice([0.02, 0.1, 0.9]),
                }
            if self.theme.common:
                drawn = {"x": self.rng.randint(0, 1), "x@2": self.rng.randint(0, 2)}
                drawn |= {"x@5": self.rng.randint(0, 1)} if ask.index % 3 else {}
            trials.append(tuple((drawn | wished[place]).items()))
        self.send(
            happened.Proposed,
            cause=ask.id,
            study=ask.study,
            index=ask.index,
            trials=tuple(trials),
            exhausted=n < ask.n,
            notes=tuple(f'{{"n": {place}}}' for place in range(n))
            if self.rng.random() < 0.3
            else (),
        )

    def _plan(self, ask: AskPlan) -> None:
        luck = self.rng.random()
        if luck < 0.06:
            self.send(
                happened.PolicyFailed, cause=ask.id, reason="raised a KeyError", policy=ask.policy
            )
            self.at = round(self.at + 61.0, 4)  # it is not asked again for so long
            return
        plans = tuple(self._plan_of(snapshot) for _, snapshot in ask.snapshots)
        if luck < 0.12:
            plans = (replace(plans[0], order=(*plans[0].order, "nobody")), *plans[1:])
            self.send(happened.Planned, cause=ask.id, plans=plans)
            self.at = round(self.at + 61.0, 4)
            return
        self.send(happened.Planned, cause=ask.id, plans=plans)

    def _plan_of(self, snapshot: Snapshot) -> Plan:
        order = [each.trial for each in snapshot.waiting]
        self.rng.shuffle(order)
        both = (*snapshot.running, *snapshot.waiting)
        widths = {each.trial: self.rng.randint(1, max(1, each.widest)) for each in both}
        windows = {
            each.trial: WindowPlan(widths_up_to(each.widest), self.rng.choice([0.2, 1.0]))
            for each in both
            if each.widest > 1 and self.rng.random() < 0.3
        }
        patient = self.rng.random() < 0.2
        return Plan(tuple(order), widths, patient=patient, windows=windows, rule="random")

    # -- studies ---------------------------------------------------------------------------------

    def submit(self) -> None:
        number = len(self.specs) + 1
        if len(self.state.studies) >= self.theme.studies or self.rng.random() < 0.05:
            if self.specs and self.rng.random() < 0.1:
                again = self.rng.choice(list(self.specs.values()))
                self.send(happened.StudySubmitted, study=again)
            return
        fields = self.theme.study(self.rng, number)
        name = f"s-{number}"
        digest = "d" * (number % 3 if not self.theme.common else 1)
        study = spec(id=name, name=name, code=Code("a:b", "", digest), **fields)
        enqueued = self.rng.choice([(), (), ((("x", 5),), (("x", 6),))])
        self.specs[name] = study
        earlier = self._earlier(study)
        self.send(happened.StudySubmitted, study=study, enqueued=enqueued, earlier=earlier)

    def _earlier(self, study: StudySpec) -> tuple[EarlierTrial, ...]:
        """Trials of studies that are over, whose epochs those of ``study`` may take over."""
        group, over = group_of(study), self.state.finished
        return tuple(
            earlier_trial(self.specs[t.study], *[self._past(t)] * 2)
            for t in self.trials.values()
            if group
            and t.study != study.id
            and over.get(t.study, DELETED) != DELETED
            and group_of(self.specs[t.study]) == group
            and self._parents(t)
        )

    def delete(self) -> None:
        """A study that is over is deleted."""
        name = self.named()
        if name in self.specs:
            record = StudyRecord(self.specs[name], "complete", 100.0, self.at, "")
            self.send(happened.StudyDeleted, record=record)

    def cancel(self) -> None:
        self.send(happened.StudyCancelled, study=self.named())

    def fail_study(self) -> None:
        self.send(happened.StudyFailed, study=self.named(), reason="its sampler raised")

    def pause(self) -> None:
        self.send(happened.StudyPaused, study=self.named())

    def resume(self) -> None:
        paused = [s.spec.id for s in self.state.studies.values() if s.status == "paused"]
        self.send(happened.StudyResumed, study=self.rng.choice(paused) if paused else self.named())

    def weigh(self) -> None:
        weight, priority = self.rng.choice([0.5, 1.0, 2.0, 4.0]), self.rng.choice([-1, 0, 0, 1])
        self.send(happened.StudyWeighed, study=self.named(), weight=weight, priority=priority)

    def extend(self) -> None:
        """A study that runs or is over goes on to more trials; at times to fewer."""
        if not self.specs:
            return
        name = self.rng.choice(list(self.specs))
        past = None
        if name in self.state.finished and self.rng.random() < 0.95:
            mine = sorted(
                (t for t in self.trials.values() if t.study == name), key=lambda t: t.number
            )
            past = FinishedStudy(100.0, tuple(map(self._past, mine)))
        more = self.specs[name].n_trials + self.rng.choice([-1, 1, 2, 4])
        study = replace(self.specs[name], n_trials=max(1, more))
        earlier = () if past is None else self._earlier(study)
        self.send(happened.StudyExtended, study=study, past=past, earlier=earlier)

    def _past(self, trial: Trial) -> PastTrial:
        """Return what the ledger has of a trial of a study that is over."""
        own = self.trained.get(trial.id, OfTrial())
        past = replace(PastTrial.of(trial), parents=self._parents(trial))
        return replace(past, reports=own.reports, taken=own.taken, holders=own.holders)

    def _parents(self, trial: Trial) -> tuple[Parent, ...]:
        mine = [parent for (name, _), parent in self.durables.items() if name == trial.id]
        return tuple(sorted(mine, key=lambda parent: -parent.epoch)[:2])

    def bring_in(self) -> None:
        """A study of another ledger; refused where its id is taken."""
        name = self.rng.choice(["past-1", "past-2", "past-3", *self.specs])
        members = (Member("cpu.there.0", 0),)
        epochs = tuple(
            AcceptedEpoch(
                trial_id(name, 0),
                n,
                0.5,
                (("v", 0.5),),
                "h",
                "s",
                1.0,
                "d",
                0,
                1,
                float(n),
                members,
            )
            for n in range(1, self.rng.randint(1, 4))
        )
        done = FinishedTrial(
            0,
            self.rng.choice([TrialState.COMPLETED, TrialState.STOPPED]),
            (("x", 1),),
            len(epochs),
            len(epochs),
            0.5,
            members,
            1.0,
            2.0,
            epochs=epochs,
            durables=((Parent(1, "file:past", "h"), 3.0),),
        )
        failed = FinishedTrial(
            1, TrialState.FAILED, (("x", 2),), 0, 3, None, members, 1.0, 2.0, Failure("nan", "NaN")
        )
        record = StudyRecord(spec(id=name, name=name), self.rng.choice(OVER), 1.0, 2.0)
        self.send(happened.StudyImported, record=record, trials=(done, failed))

    def enqueue(self) -> None:
        params = self.rng.choice([(("x", 1),), (("x", 7), ("batch_size", 64)), ()])
        self.send(happened.TrialEnqueued, study=self.named(), params=params)

    def ask(self) -> None:
        names = self.asked_studies() if self.rng.random() < 0.95 else [self.named()]
        if not names:
            return
        name = self.rng.choice(names)
        study = self.state.studies.get(name)
        number = len(study.trials) if study is not None else 0
        self.send(
            happened.TrialAsked, study=name, number=number + self.rng.choice([0, 0, 0, 0, 1, -1])
        )

    def tell(self) -> None:
        names = self.asked_studies()
        if not names:
            return
        name = self.rng.choice(names)
        number = self.rng.randint(0, max(0, len(self.state.studies[name].trials) - 1))
        value = self.rng.choice([None, 0.2, 0.4, 0.4, 0.9])
        reason = "it did not converge" if value is None else ""
        self.send(happened.TrialTold, trial=trial_id(name, number), value=value, reason=reason)

    def close(self) -> None:
        self.send(happened.StudyClosed, study=self.named())

    def restore(self) -> None:
        self.send(happened.LedgerRestored)
        self.send(happened.Tick)

    # -- devices and time ------------------------------------------------------------------------

    def device(self, number: int | None = None) -> str:
        if number is None:
            number = self.rng.randrange(self.theme.devices + 1)
        return f"cpu.a.{number}"

    def join(self, number: int | None = None) -> None:
        name = self.device(number)
        # A device that comes back has as many slots as before.
        slots = self.theme.slots[int(name.rpartition(".")[2]) % len(self.theme.slots)]
        cores = tuple(range(self.theme.cores))
        memory = self.rng.choice([None, 8 * 10**9])
        made = Device(name, "a", "cpu", cores, memory, slots)
        if self.theme.memory:
            memory = self.rng.choice([None, 4 * 10**9, 8 * 10**9, 8 * 10**9, 16 * 10**9])
            seats = self.rng.choice([1, 1, 2, 4])
            made = replace(made, memory=memory, slots=slots * seats, seats=seats)
        if self.theme.prices:
            made = replace(made, unmetered="")
        incarnation = str(self.rng.randint(1, 2))
        self.odd_machines.discard(name)
        if "signature" in self.seed and self.rng.random() < 0.3:
            self.odd_machines.add(name)
        self.send(happened.DeviceJoined, device=made, incarnation=incarnation)

    def drain(self) -> None:
        self.send(happened.DeviceDraining, device=self.device())

    def leave(self) -> None:
        self.send(happened.DeviceLeft, device=self.device(), reason="its worker is gone")
        if not self.state.devices:
            self.join()

    def take_out(self) -> None:
        deadline = self.rng.choice([None, round(self.at + self.rng.uniform(0, 3), 2)])
        names = [self.device() for _ in range(self.rng.randint(1, 2))]
        chosen = tuple(dict.fromkeys(names))
        if self.rng.random() < 0.5:
            n = self.rng.randint(0, min(2, len(drainable(self.state))))
            copied = Engine(deepcopy(self.state), plugs=PLUGS)  # it works out costs
            chosen = choose_devices(copied, n, at=self.at, within=1.0)
        if chosen:
            self.send(happened.DevicesTakenOut, devices=chosen, deadline=deadline)

    def give_back(self) -> None:
        held = sorted(self.state.held) or [self.device()]
        self.send(happened.DevicesGivenBack, devices=tuple(held[: self.rng.randint(1, 3)]))

    def tick(self) -> None:
        due = self.recorder.engine.wake_at()
        later = self.at + self.rng.choice([0.05, 0.5, 2.0])
        self.at = round(max(self.at, due if due is not None and due < self.at + 60 else later), 4)
        self.send(happened.Tick)

    def choose_policy(self) -> None:
        policy = self.rng.choice(self.theme.policies)
        # Half of the worlds have the order of 0.2.
        fields = {"fill_at_end": True} if self.theme.common and self.ties else {}
        if self.theme.memory:
            fields = {"cross_study": policy in ("pack", "srtf"), "fill_at_end": self.ties}
        self.send(happened.PolicyChosen, policy=policy, **fields)


def write(theme: str) -> None:
    """Make a theme's sequences, and store them."""
    made = [
        World(theme, seed).run(keep_snapshot=seed < SNAPSHOTS)
        for seed in range(THEMES[theme].sequences)
    ]
    store(theme, made)


def again(theme: str) -> None:
    """Store the present engine's digests of a theme's events, and say what changed.

    A snapshot from which the engine would not go on as it does from the start is made again.
    """
    made = []
    for number, before in enumerate(read(theme)):
        recorder, now = Recorder(), replace(before, digests="", checkpoints=[])
        due = {at for at, *_ in before.checkpoints}
        snapshot = before.snapshot
        for at, event in enumerate(before.events, 1):
            now.digests += recorder.handle(*event)
            if snapshot is not None and at == snapshot[0]:
                snapshot = at, state_to_json(recorder.engine.state)
            if at in due:
                now.checkpoints.append((at, *recorder.checkpoint()))
        if snapshot is not None and now.difference(*now.take_up()):
            now.snapshot = snapshot
        if wrong := before.difference(Recorder(), 0):
            print(f"{theme}, sequence {number}: {wrong}")
        made.append(now)
    store(theme, made)


def store(theme: str, made: list[Sequence]) -> None:
    text = "".join(json.dumps(asdict(each), separators=(",", ":")) + "\n" for each in made)
    FOLDER.mkdir(parents=True, exist_ok=True)
    # It has no time and no name: if the same code makes it again, it is the same file.
    (FOLDER / f"{theme}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(theme, len(made), sum(len(each.events) for each in made))


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--again"]
    for name in names or THEMES:
        (again if "--again" in sys.argv else write)(name)
