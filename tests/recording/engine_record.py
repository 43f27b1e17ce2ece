"""Digests of an engine's behaviour, which a refactoring has to keep.

Theory of operation. A *sequence* is a list of events as the ledger stores them, and for each event
two digests: of the outcome and the decisions, and of the changes. At *checkpoints* there are three
more: of the whole state, of the sentences that the engine wrote since the last checkpoint, and of
the views that readers and operators derive from the state. A replay hands the stored events to the
present engine and compares. It generates no events, so it depends on no generator.

The canonical form names classes and fields and no modules, because modules move. Fields that have
their default are left out, because new fields come with a default. Sentences for people are
digested separately, so that rewording one does not change the other digests. Numbers are rounded to
nine digits, because LAPACK gives other last bits on another processor.

    python -m recording.engine_record THEME SEQUENCE EVENT

prints the canonical form after one event of a recorded sequence. Run it in the folder ``tests`` of
two checkouts and compare the outputs to see the difference behind two digests.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, state_from_json, state_to_json
from penstock.base.errors import IllegalTransition
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.study import DELETED
from penstock.scheduler.outlook.autoscale import device_demand
from penstock.scheduler.outlook.drain_choice import choose_devices, drainable
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.state.epoch_times import next_epochs
from penstock.scheduler.state.state import EngineState, PastWindows, Waits
from penstock.scheduler.strategies.base import UNBOUNDED

FOLDER = Path(__file__).parents[1] / "recorded" / "sequences"

#: Classes that were renamed since the record was made: present name to recorded name.
RENAMED_CLASSES: dict[str, str] = {
    "Drain": "Hold",
    "WorkloadTuning": "Tuned",
    "Allocation": "Place",
    "GroupSlowdown": "Company",
}
#: Fields that were renamed since: (present class, present field) to recorded field.
RENAMED_FIELDS: dict[tuple[str, str], str] = {("Line", "fence"): "attempt"}

#: Words of sentences that changed since: present to recorded.
RENAMED_WORDS: dict[str, str] = {
    "optimize(..., catch=(Exception,)), or limits=": "limits=",
    "resources=penstock.Resources(on_signature": "exactness=penstock.Exactness(on_signature",
}

#: Facts of the standing plan that are newer than the record.
NEW_IN_OUTLOOK = {"rule"}
#: Facts of a study that are newer than the record.
NEW_OF_STUDIES = {"together", "apart", "readers", "readers_take", "ends", "deadline", "misses"}
#: Fields of decisions and of the state that the record has not.
NEW_FIELDS = {
    ("StudyState", "extended_at"),
    ("StudyState", "needs"),
    ("DeviceState", "machine"),
    ("Processes", "largest"),
    ("StudyRow", "names"),
    ("HistoryEntry", "spread"),
    ("Line", "attempt"),
    ("Line", "length"),
    ("AcceptedEpoch", "length"),
    ("EpochRow", "length"),
    *(("Attempt", name) for name in ("start", "between", "length", "charged", "writings")),
    *((name, "spent") for name in ("StudyState", "StudyRecord", "StudyRow")),
    ("StudyCosts", "segments"),
    ("EngineState", "preemptions"),
    ("Trial", "suggestions"),
    *(("KnownTrial", name) for name in ("peaks", "floors", "shortages")),
    ("Dispatch", "suggestions"),
    *(("StudyState", name) for name in ("unheard", "finishes")),
    *(("EngineState", name) for name in ("ext", "past_windows", "waits", "passed", "own_rules")),
    ("EngineState", "fill_at_end"),
    ("CostTable", "features"),
    ("Attempt", "undivided"),
    *(("Dispatch", name) for name in ("width_epochs", "ext")),
}

#: Fields that hold sentences for people, under their recorded names.
SENTENCES = {"message", "reason", "story", "plan_error", "suspicion", "refused", "undurable", "out"}
#: Extensions that keep what the record has of trials.
_OF_TRIALS = ("memory", "prefixes")
#: The fields that trials of studies that are over have in the record.
_HAD = {"window": 0, "cut_windows": 0, "queued_at": None, "waited": 0.0, "service": 0.0}
#: Kinds of questions of system tuning, which the record has one after the other.
_QUESTIONS = ("Consult", "AskConfigs")
DIGITS = 9
#: Hexadecimal digits of a digest: of one event, and at a checkpoint.
SHORT, LONG = 6, 16


@dataclass(frozen=True)
class _Shape:
    """The written form of a class: its recorded name, and its fields in order."""

    name: str
    fields: tuple[tuple[str, str, Any], ...]


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default


@cache
def _shape(cls: type) -> _Shape:
    found = [
        (RENAMED_FIELDS.get((cls.__name__, each.name), each.name), each.name, _default(each))
        for each in fields(cls)
        if (cls.__name__, each.name) not in NEW_FIELDS
    ]
    return _Shape(RENAMED_CLASSES.get(cls.__name__, cls.__name__), tuple(sorted(found, key=str)))


@dataclass(frozen=True)
class TrialRef:
    """A trial that is named with a segment, as the record has it."""

    trial: str
    number: int
    params: tuple[tuple[str, Any], ...]
    shards: int


def _refs(named: Iterable[dict[str, Any]]) -> tuple[TrialRef, ...]:
    return tuple(TrialRef(**each | {"params": tuple(each["params"].items())}) for each in named)


class Said(list[Any]):
    """Sentences that were said, and what has moved since the record was made."""

    #: Failures of trials with a configuration that was then left out, by trial.
    suspicions: dict[str, str]
    #: Facts of trials' models that extensions knew, also of those that are gone: the size by which
    #: one was tuned, and what was counted.
    models: dict[str, dict[str, Any]]
    #: The engine's state.
    state: EngineState
    #: The waits and windows of trials, also of those that are gone: by trial and study.
    waits: dict[str, Waits]
    windows: dict[str, PastWindows]

    def __init__(
        self,
        engine: Engine,
        suspicions: dict[str, str],
        models: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.suspicions, self.state = suspicions, engine.state
        self.waits, self.windows = {}, {}
        self.models = {"sizes": {}, "counts": {}} if models is None else models

    @property
    def ext(self) -> dict[str, Any]:
        """State of extensions."""
        return self.state.ext

    def note(self) -> None:
        """Keep what may be forgotten with the next event."""
        self.waits |= self.state.waits
        self.windows |= self.state.past_windows
        if (known := self.ext.get("system_tuning")) is not None:
            self.models["sizes"] |= known.sizes
        for study in self.ext["nas"].studies.values() if "nas" in self.ext else ():
            self.models["counts"] |= study.trials

    def moved(self, value: Any) -> list[tuple[str, Any, Any]]:
        """Fields that the record has of ``value``: their names, values and defaults."""
        kind, known = type(value).__name__, self.ext.get("system_tuning")
        if kind == "Dispatch":
            told = value.ext.get("system_tuning", {})
            epochs = told.get("epochs", value.width_epochs)
            lane = value.ext.get("lanes", {})
            return [
                ("weights", tuple(lane.get("weights", {}).items()), ()),
                ("describe", _refs(value.ext.get("nas", {}).get("count", ())), ()),
                ("probe", told.get("probe", ()), ()),
                ("probe_epochs", epochs, 0.0),
                ("profile", told.get("profile", False), False),
            ]
        if kind == "EngineState" and known is not None:
            return [("tuned", known.workloads, {})]
        if kind == "Attempt" and (turns := self.ext.get("lanes")) is not None:
            return [("weight", turns.weights.get(value.segment.fence, 1.0), 1.0)]
        if kind == "StudyState":
            name = value.spec.id
            rule, deadline = self.state.own_rules.get(name, ("", 0.0))
            return [
                ("heard", value.heard, False),
                ("unheard", value.unheard or [], []),
                ("ending", value.ending, False),
                ("finishes", value.finishes or "", ""),
                ("vain_windows", self.state.windows_of(name).vain, 0),
                ("rule", rule, ""),
                ("deadline", deadline, 0.0),
            ]
        if kind == "Trial":
            return [*self._waited(value), *(self._tuned(value, known) if known else ())]
        return []

    def _waited(self, value: Any) -> list[tuple[str, Any, Any]]:
        self.note()
        waits = self.waits.get(value.id, Waits())
        windows = self.windows.get(value.study, PastWindows())
        return [
            ("state_hash", value.state_hash, ""),
            ("window", windows.widest.get(value.id, 0), 0),
            ("cut_windows", windows.cut.get(value.id, 0), 0),
            ("queued_at", waits.queued_at, None),
            ("waited", waits.waited, 0.0),
            ("service", waits.service, 0.0),
        ]

    def _tuned(self, value: Any, known: Any) -> list[tuple[str, Any, Any]]:
        suspect = known.suspects.get(value.id)
        if suspect is not None:
            self.suspicions[value.id] = suspect.why
        return [
            ("suspect", suspect.config if suspect else (), ()),
            ("suspicion", self.suspicions.get(value.id, ""), ""),
            ("tuned_as", self.models["sizes"].get(value.id, ""), ""),
        ]

    def models_of(self, value: Any) -> list[tuple[str, Any, Any]]:
        """Return the fields that the record has of the models of ``value``, as ``moved``."""
        if type(value).__name__ == "Trial":
            self.note()
            return [("architecture", self.models["counts"].get(value.id), None)]
        if type(value).__name__ == "StudyState" and "nas" in self.ext:
            known = self.ext["nas"].studies.get(value.spec.id)
            return [("architectures", known and known.architectures, None)]
        return []


def canonical(value: Any, said: list[Any]) -> Any:
    """``value`` as JSON that depends upon no module path; sentences go to ``said``."""
    if value is None or value.__class__ in (str, int, bool):
        return value
    if isinstance(value, float):
        rounded = float(format(value, f".{DIGITS}g"))
        # A snapshot makes 1.0 of a 1 in a field of floats.
        return int(rounded) if rounded.is_integer() else rounded
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return [[canonical(key, said), canonical(each, said)] for key, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(each, said) for each in value), key=str)
    if is_dataclass(value):
        return _canonical_fields(value, said)
    if isinstance(value, (tuple, list)):
        return [canonical(each, said) for each in value]
    raise TypeError(f"no canonical form for {value!r}")


def _canonical_fields(value: Any, said: list[Any]) -> dict[str, Any]:
    shape = _shape(type(value))
    written: dict[str, Any] = {"": shape.name}
    known = [(recorded, getattr(value, present), d) for recorded, present, d in shape.fields]
    if isinstance(said, Said) and (moved := [*said.moved(value), *said.models_of(value)]):
        known = sorted((*known, *moved), key=lambda field: f"'{field[0]}'")
    for recorded, each, default in known:
        if each.__class__ is default.__class__ and each == default:
            continue
        if recorded in SENTENCES and not isinstance(each, bool):
            said.append(canonical(each, []))
            written[recorded] = [*each] if isinstance(each, dict) else "said"
        else:
            written[recorded] = canonical(each, said)
    return written


def _recorded_words(said: Any) -> Any:
    """Return ``said`` in the words of the record."""
    text = json.dumps(said)
    for present, recorded in RENAMED_WORDS.items():
        text = text.replace(present, recorded)
    return json.loads(text)


def _digest(value: Any, length: int) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


class Recorder:
    """An engine that digests what it does with each event."""

    def __init__(
        self, engine: Engine | None = None, suspicions: dict[str, str] | None = None
    ) -> None:
        self.engine = engine or Engine(plugs=PLUGS)
        self._suspicions = {} if suspicions is None else suspicions
        self.decisions: tuple[Any, ...] = ()
        #: Sentences since the last checkpoint.
        self.said = Said(self.engine, self._suspicions)
        #: Facts of trials that extensions have known, by extension: of each study, by trial.
        self.known: dict[str, list[dict[str, Any]]] = {}
        self.at = 0.0

    def handle(self, kind: str, body: str) -> str:
        """Have the engine handle a stored event; both digests of what came of it."""
        decided, changed = self.forms(kind, body)
        return _digest(decided, SHORT) + _digest(changed, SHORT)

    def forms(self, kind: str, body: str) -> tuple[Any, Any]:
        """As ``handle``, but the canonical forms themselves."""
        outcome, event = "", decode(kind, self._given(kind, body))
        self.at = event.at
        self.said.note()
        self._note()
        try:
            self.decisions = self.engine.handle(event)
        except (Refused, IllegalTransition) as error:
            outcome, self.decisions = type(error).__name__, ()
            self.said.append(str(error))
        decided = [outcome, canonical(self.decisions, self.said)]
        changes = self.engine.take_changes()
        # Rows replace each other by their ids, so only epochs have an order.
        changed = {
            name: canonical(rows if name == "epochs" else dict(sorted(rows.items())), self.said)
            for name, rows in vars_of(changes)
        }
        self._note()
        for known in self.known.values():
            moved = {name: own for each in known for name, own in each.items()}
            changed["trials"] = _with_fields(changed["trials"], moved)
        return decided, changed

    def _given(self, kind: str, body: str) -> str:
        """Return an event without what trials of an extended study have in the record, and in no
        ledger. If the study is over, the engine has that by itself.
        """
        if kind != "StudyExtended":
            return body
        fields, state = json.loads(body), self.engine.state
        for trial in (fields["past"] or {}).get("trials", ()):
            had = {name: trial.pop(name) for name in _HAD if name in trial}
            if not any(had.values()) or trial["study"] not in state.finished:
                continue
            waits = [had.get(name, default) for name, default in _HAD.items()]
            windows = state.past_windows.setdefault(trial["study"], PastWindows())
            windows.widest[trial["id"]], windows.cut[trial["id"]] = waits[:2]
            state.waits[trial["id"]] = Waits(*waits[2:])
        return json.dumps(fields)

    def _note(self) -> None:
        """Keep what extensions know of trials, which may go with their study."""
        for name, known in self.engine.state.ext.items():
            if name in _OF_TRIALS:
                noted = self.known.setdefault(name, [])
                found = (study.trials for study in known.studies.values())
                noted += [own for own in found if not any(own is each for each in noted)]

    def checkpoint(self) -> list[str]:
        """The digests of state, sentences and views; what was said is forgotten."""
        digests = [_digest(form, LONG) for form in self.checkpoint_forms()]
        self.said = Said(self.engine, self._suspicions, self.said.models)
        return digests

    def checkpoint_forms(self) -> tuple[Any, Any, Any]:
        """The canonical forms of state, sentences and views."""
        state = _with_moved(canonical(self.engine.state, self.said), self.engine.state)
        return state, [_recorded_words(each) for each in self.said], self._views()

    def _views(self) -> Any:
        """Return the engine's answers to runner, readers and operators.

        A copy is asked, because expected costs of epochs are computed at the first question and
        kept.
        """
        engine, at = Engine(deepcopy(self.engine.state), plugs=PLUGS), self.at
        views = [
            engine.wake_at(),
            engine.outstanding(),
            *([q for q in engine.questions() if type(q).__name__ == kind] for kind in _QUESTIONS),
            _known_then(engine, outlook(engine, at)),
            choose_devices(engine, len(drainable(engine.state)) // 2, at=at, within=1.0),
            device_demand(engine),  # which uses it up
        ]
        return canonical(views, [])

    def restart(self) -> None:
        """Go on with an engine that was made from a snapshot of this one."""
        self.engine = Engine(state_from_json(state_to_json(self.engine.state)), plugs=PLUGS)
        self.said.state = self.engine.state


def _with_moved(state: dict[str, Any], known: EngineState) -> dict[str, Any]:
    """``state`` with what extensions keep now where the record has it."""
    ext = known.ext
    of_memory = ext["memory"].studies if "memory" in ext else {}
    studies = {name: _fields_of(its) for name, its in of_memory.items()}
    for name, its in ext["prefixes"].studies.items() if "prefixes" in ext else ():
        # Trials of a study that is not over any more were not kept.
        over = [t for t in its.earlier if known.finished.get(t.study, DELETED) != DELETED]
        studies.setdefault(name, {}).update(_fields_of(replace(its, earlier=over)))
    for name, its in ext["fusion"].studies.items() if "fusion" in ext else ():
        studies.setdefault(name, {}).update(_fields_of(its))
    for name, power in (ext["limits"]["watts"] if "limits" in ext else {}).items():
        if power:
            studies.setdefault(name, {})["power"] = canonical(power, [])
    moved = [("studies", studies)]
    for each in _OF_TRIALS:
        of_studies = ext[each].studies.values() if each in ext else ()
        moved += [("trials", own.trials) for own in of_studies]
    for part, known_of_it in moved:
        if part in state:
            state = state | {part: _with_fields(state[part], known_of_it)}
    return state


def _with_fields(rows: list[Any], moved: dict[str, Any]) -> list[Any]:
    """Rows of a part of the state, with the fields that an extension keeps now."""
    return [
        [name, dict(sorted((row | _fields_of(moved[name])).items()))]
        if name in moved
        else [name, row]
        for name, row in rows
    ]


def _fields_of(value: Any) -> dict[str, Any]:
    """The fields of what an extension keeps of a study or a trial."""
    found = value if isinstance(value, dict) else canonical(value, [])
    return {name: each for name, each in found.items() if name not in ("", "trials")}


def _known_then(engine: Engine, seen: dict[str, Any]) -> dict[str, Any]:
    """Reduce the outlook to the facts that it had when the record was made."""
    then = {name: fact for name, fact in seen.items() if name not in NEW_IN_OUTLOOK}
    studies = then["studies"]
    running = [_foretold_then(engine, row) for row in then["running"]]
    return then | {
        "running": running,
        "next_free": min((r["ends"] for r in running if r["ends"] is not None), default=None),
        "studies": [{n: f for n, f in each.items() if n not in NEW_OF_STUDIES} for each in studies],
    }


def _foretold_then(engine: Engine, row: dict[str, Any]) -> dict[str, Any]:
    """A running trial's row. A trial whose end only its objective knows had one, too: far away."""
    if row["why"] == "until its objective returns":
        row = row | {"why": "until its target"}
    if row["target"] < UNBOUNDED or row["ends"] is not None:
        return row
    with engine.state.costs.read_only():
        seconds = next_epochs(engine.state, engine.extensions, engine.state.attempts[row["fence"]])
    if seconds is None or row["epoch_ends"] is None:
        return row
    return row | {"ends": row["epoch_ends"] + (row["target"] - row["epoch"]) * seconds}


def vars_of(changes: Any) -> Iterator[tuple[str, Any]]:
    """The recorded names and the values of the fields of ``changes``, in order of the names."""
    for recorded, present, _ in _shape(type(changes)).fields:
        yield recorded, getattr(changes, present)


@dataclass
class Sequence:
    """A recorded sequence. ``events`` are (kind, body); ``digests`` two an event, end to end.

    ``checkpoints`` are (events before it, state, sentences, views). ``snapshot`` is (events before
    it, text), as the engine that was recorded wrote it, or None.
    """

    seed: str
    events: list[tuple[str, str]]
    digests: str
    checkpoints: list[tuple[int, str, str, str]]
    snapshot: tuple[int, str] | None = None

    def digest(self, number: int) -> str:
        """The two digests of event ``number``."""
        return self.digests[number * 2 * SHORT : (number + 1) * 2 * SHORT]

    def begin(self) -> tuple[Recorder, int]:
        """An engine at the start; and how many events it has seen, which is none."""
        return Recorder(), 0

    def take_up(self) -> tuple[Recorder, int]:
        """An engine from the recorded snapshot, and how many events are in that."""
        assert self.snapshot is not None
        number, text = self.snapshot
        trials = json.loads(text)["trials"].items()
        suspicions = {name: why for name, trial in trials if (why := trial.get("suspicion"))}
        return Recorder(Engine(state_from_json(text), plugs=PLUGS), suspicions), number

    def difference(self, recorder: Recorder, first: int) -> str:
        """Return where ``recorder``, after ``first`` events, departs from the record, or ''."""
        due = {number: digests for number, *digests in self.checkpoints}
        for number, (kind, body) in enumerate(self.events[first:], first):
            found, recorded = recorder.handle(kind, body), self.digest(number)
            if found[:SHORT] != recorded[:SHORT]:
                return f"the decisions differ at event {number} ({kind})"
            if found != recorded:
                return f"the changes differ at event {number} ({kind})"
            if number + 1 in due:
                now = recorder.checkpoint()
                # Some sentences were said before the snapshot that a replay began with.
                parts = zip(("state", "sentences", "views"), now, due[number + 1], strict=True)
                wrong = [name for name, a, b in parts if a != b]
                if first and number + 1 == min(n for n in due if n > first):
                    wrong = [name for name in wrong if name != "sentences"]
                if wrong:
                    return f"{' and '.join(wrong)} differ after event {number} ({kind})"
                recorder.restart()
        return ""


def themes() -> list[str]:
    """The names of the recorded files."""
    return sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.jsonl.gz"))


def read(theme: str) -> list[Sequence]:
    """The sequences of a theme."""
    with gzip.open(FOLDER / f"{theme}.jsonl.gz", "rt") as lines:
        found = [Sequence(**json.loads(line)) for line in lines]
    for sequence in found:
        sequence.events = [(kind, _as_of_ledgers(kind, body)) for kind, body in sequence.events]
    return found


def _as_of_ledgers(kind: str, body: str) -> str:
    """An event without what trials of an extended study have in the record, and in no ledger."""
    if kind != "StudyExtended":
        return body
    fields = json.loads(body)
    for trial in (fields["past"] or {}).get("trials", ()):
        for name in ("peaks", "floors"):
            trial.pop(name, None)
    return json.dumps(fields)


def main(theme: str, sequence: str, event: str) -> None:
    """Print what one event of a recorded sequence came to."""
    recorder = Recorder()
    for kind, body in read(theme)[int(sequence)].events[: int(event) + 1]:
        decided, changed = recorder.forms(kind, body)
    state, said, views = recorder.checkpoint_forms()
    parts = {"event": [kind, json.loads(body)], "decisions": decided, "changes": changed}
    found = parts | {"state": state, "sentences": said, "views": views}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
