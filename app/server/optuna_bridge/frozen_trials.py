"""A study's trials as Optuna's ``FrozenTrial``, the form that Optuna's users and plots expect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna.distributions import CategoricalDistribution, json_to_distribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ....base.errors import UsageError
from ....scheduler.model.events import Suggested
from ....scheduler.model.study import number_of, trial_id
from ....scheduler.model.trial import TrialState
from ....scheduler.state.configurations import best_replicates
from ....tasks.objectives.history import STATES as OPTUNA_STATES
from ....tasks.objectives.history import local_time
from ...ledger.codec import spec_from_json
from .updates import STATES as UPDATE_STATES

if TYPE_CHECKING:
    import optuna

    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, TrialRow

STATES = {state: OPTUNA_STATES[name] for state, name in UPDATE_STATES.items()}


class NoTrial(UsageError, ValueError):
    """The error for a study without a complete trial.

    The class is a ValueError, too, because Optuna raises a ValueError in this case.
    """


class SeveralObjectives(UsageError, RuntimeError):
    """The error for a study without a single best trial, because it has several objectives.

    The class is a RuntimeError, too, because Optuna raises a RuntimeError in this case.
    """


class SuggestedDistributions:
    """The distributions of one study's trials. Each distribution is read from the ledger once."""

    def __init__(self, reader: Reader, study: str) -> None:
        self._reader = reader
        self._study = study
        self._last_seq = 0
        self._by_trial: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._past: dict[str, dict[str, str]] | None = None

    def read(self) -> None:
        """Read the distributions of the parameters that were drawn since the last call."""
        for seq, event in self._reader.of_trials(self._study, Suggested, self._last_seq):
            self._by_trial[event.trial][event.name] = event.distribution
            self._last_seq = seq

    def of(self, trial: str) -> dict[str, str]:
        """Return the distributions of ``trial`` as Optuna's JSON texts, by parameter name."""
        return self._by_trial.get(trial) or self._imported().get(trial, {})

    def _imported(self) -> dict[str, dict[str, str]]:
        if self._past is None:
            record = self._reader.imported(self._study)
            past = () if record is None else record[1].trials
            self._past = {trial_id(self._study, each.number): dict(each.drawn) for each in past}
        return self._past


class Results:
    """The trials of one study in the ledger. Each epoch is read once and cached.

    ``first`` is Optuna's id of trial 0. The id of trial ``n`` is ``first + n``.
    """

    def __init__(self, reader: Reader, study: str, first: int = 0) -> None:
        self._reader = reader
        self._study = study
        self._first = first
        self._values: dict[str, dict[int, float]] = {}
        self._metrics: dict[str, Mapping[str, float]] = {}
        self._began: dict[str, float] = {}
        self._joules: dict[str, float | None] = {}
        self._rowid = 0
        self._space: dict[str, Any] | None = None
        #: The ranges that each numeric parameter had before edits of the study, by name, newest
        #: first.
        self._past_of: dict[str, list[Any]] = {}
        #: The number of changes of the space that were noticed. ``_looked`` is True if the current
        #: call has already read the space again.
        self._edits, self._looked = 0, False
        self._distributions_of = SuggestedDistributions(reader, study)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number. Raises BackendError if the ledger does not answer."""
        rows = self._reader.trials(self._study)
        return self.frozen(rows, self._reader.epochs(self._study, self._rowid))

    def frozen(self, rows: Sequence[TrialRow], epochs: Sequence[EpochRow]) -> list[FrozenTrial]:
        """Return the trials of ``rows``. ``epochs`` are the epochs accepted since the last call."""
        self._take(epochs)
        edits, self._looked = self._edits, False
        trials = [self._freeze(row) for row in rows]
        return trials if edits == self._edits else [self._freeze(row) for row in rows]

    def _take(self, epochs: Sequence[EpochRow]) -> None:
        if not self.space():
            self._distributions_of.read()
        for epoch in epochs:
            self._rowid = epoch.rowid
            self._values.setdefault(epoch.trial, {})[epoch.epoch] = epoch.value
            self._metrics[epoch.trial] = epoch.metrics
            self._began.setdefault(epoch.trial, epoch.at - epoch.seconds)
            if epoch.taken_from:  # the joules count for the trial that trained the epoch
                continue
            before = self._joules.get(epoch.trial, 0.0)
            whole = None if before is None or epoch.joules is None else before + epoch.joules
            self._joules[epoch.trial] = whole

    def _freeze(self, row: TrialRow) -> FrozenTrial:
        state = STATES[TrialState(row.state)]
        has_values = state in (OptunaState.COMPLETE, OptunaState.PRUNED)
        distributions = self._distributions(row)
        began = self._began.get(row.id, row.created_at)  # when its first epoch began, if any
        attrs: dict[str, Any] = {"trial_id": row.id, "state": row.state, "epoch": row.epoch}
        if row.id in self._metrics:
            attrs["metrics"] = dict(self._metrics[row.id])
        if (joules := self._joules.get(row.id)) is not None:
            attrs["energy_j"] = joules
        if row.constraints:
            attrs["constraints"] = dict(row.constraints)
        if row.device:
            attrs |= {"device": row.device, "slot": row.slot}
        if row.origin_trial is not None:
            attrs["origin"] = {"trial": number_of(row.origin_trial), "epoch": row.origin_epoch}
        if row.failure_kind is not None:
            attrs |= {"failure_kind": row.failure_kind, "failure": row.failure_message}
        return FrozenTrial(
            number=row.number,
            trial_id=self._first + row.number,
            state=state,
            value=None,
            values=row.values if has_values and row.values else None,
            datetime_start=None if state is OptunaState.WAITING else local_time(began),
            datetime_complete=local_time(row.finished_at),
            params=dict(row.params),
            distributions={
                name: distributions[name] for name in row.params if name in distributions
            },
            user_attrs=attrs,
            # In Optuna's form, so that its tools see which trials are feasible.
            system_attrs={"constraints": list(row.constraints.values())} if row.constraints else {},
            intermediate_values=dict(self._values.get(row.id, {})),
        )

    def space(self) -> dict[str, Any]:
        """Return the distributions of the study's space, by parameter name.

        The result is empty if the objective defines the parameters while it runs (define-by-run).
        An edited categorical parameter has every choice that it ever had, because Optuna requires
        the same choices in all trials.
        """
        if self._space is None:
            spec = spec_from_json(self._reader.study(self._study).spec_json)
            self._space = {name: json_to_distribution(text) for name, text in spec.space or ()}
            for name, texts in spec.edits.past if spec.edits is not None else ():
                self._past_of[name] = [json_to_distribution(text) for text in reversed(texts)]
                if isinstance(distribution := self._space[name], CategoricalDistribution):
                    had = [*self._past_of.pop(name), distribution]
                    every = dict.fromkeys((type(v), v) for each in had for v in each.choices)
                    self._space[name] = CategoricalDistribution([value for _, value in every])
        return self._space

    def _distributions(self, row: TrialRow) -> dict[str, Any]:
        """Return the distributions of the trial's parameters, by name.

        In define-by-run each trial has its own distributions. In other studies the trial has the
        space's distributions, widened where the trial's value lies outside.
        """
        if not self.space() and row.params:
            texts = self._distributions_of.of(row.id)
            return {name: json_to_distribution(text) for name, text in texts.items()}
        space = self.space()
        if (beyond := _beyond(space, row.params)) and not self._looked:
            self._looked, self._space = True, None  # the study may have been edited since
            self._edits += self.space() != space
            space = self.space()
            beyond = _beyond(space, row.params)
        wider = {
            name: self._widened(space[name], name, row.params[name])
            for name in beyond
            if name in space
        }
        return space | wider if wider else space

    def _widened(self, known: Any, name: str, value: Any) -> Any:
        """Return the newest earlier range of a parameter that contains ``value``, or a wider range.

        Optuna requires that a trial's values lie in the trial's ranges. A trial from before an edit
        may have a value outside the current range, and a branch (a trial that continues another
        trial under other values) may have a value outside every range.
        """
        if isinstance(known, CategoricalDistribution):
            return known
        for earlier in self._past_of.get(name, ()):
            if _holds(earlier, value):
                return earlier
        low, high = min(known.low, value), max(known.high, value)
        return type(known)(low, high, log=known.log and low > 0)


def _holds(known: Any, value: Any) -> bool:
    """Return True if ``value`` lies in the distribution ``known``."""
    try:
        return bool(known._contains(known.to_internal_repr(value)))
    except ValueError:  # not one of the choices, or not a number
        return False


def _beyond(space: Mapping[str, Any], params: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters whose values do not lie in their distributions."""
    return [name for name in params if name not in space or not _holds(space[name], params[name])]


class KeptResults(Results):
    """``Results`` with a cache of trials. A trial is built again only after a change.

    Callers share the cached trials and must not modify them.
    """

    def __init__(self, reader: Reader, study: str, first: int = 0) -> None:
        super().__init__(reader, study, first)
        self._cache: dict[str, tuple[object, FrozenTrial]] = {}

    def _freeze(self, row: TrialRow) -> FrozenTrial:
        key = (row, len(self._values.get(row.id, ())), self._edits)
        entry = self._cache.get(row.id)
        if entry is None or entry[0] != key:
            entry = self._cache[row.id] = (key, super()._freeze(row))
        return entry[1]


def best(
    trials: Sequence[FrozenTrial], directions: Sequence[str], *, may_be_pruned: bool = True
) -> FrozenTrial:
    """Return the complete, feasible trial with the best value. On a tie the earliest trial wins.

    A small ASHA study may end without a complete trial. If ``may_be_pruned`` is True, the result is
    then the best of the pruned trials with the most epochs, because values after different training
    must not be compared. (In Optuna a pruned trial is never the best.) Raises NoTrial if there is
    no such trial, and SeveralObjectives if the study has several objectives.
    """
    candidates = _candidates(trials, directions, may_be_pruned=may_be_pruned)
    return max(candidates, key=lambda trial: _scores(trial, directions))


def best_of(
    replicates: int, trials: Sequence[FrozenTrial], directions: Sequence[str]
) -> list[FrozenTrial]:
    """Return the trials, by number, of the best configuration of a study with replicates.

    ``replicates`` is the number of trials for each configuration. ``best_replicates`` chooses the
    configuration among the trials from which ``best`` would choose. Raises the same errors as
    ``best``.
    """
    by_number = {
        trial.number: trial for trial in _candidates(trials, directions, may_be_pruned=True)
    }
    sign = 1.0 if directions[0] == "maximize" else -1.0
    values = {number: trial.values[0] for number, trial in by_number.items()}
    return [by_number[number] for number in best_replicates(replicates, sign, values)]


def _candidates(
    trials: Sequence[FrozenTrial], directions: Sequence[str], *, may_be_pruned: bool
) -> list[FrozenTrial]:
    if len(directions) > 1:
        raise SeveralObjectives(
            f"a study of {len(directions)} objectives has no single best trial: see best_trials"
        )
    candidates = [
        t for t in trials if t.state is OptunaState.COMPLETE and t.values and _feasible(t)
    ]
    if not candidates and may_be_pruned:
        stopped = [t for t in trials if t.state is OptunaState.PRUNED and t.values and _feasible(t)]
        longest = max((len(t.intermediate_values) for t in stopped), default=0)
        candidates = [t for t in stopped if len(t.intermediate_values) == longest]
    if not candidates:
        failures = [t.user_attrs["failure"] for t in trials if "failure" in t.user_attrs]
        why = f"; the first failure was: {failures[0]}" if failures else ""
        if not all(map(_feasible, trials)):
            why = f"; {sum(not _feasible(trial) for trial in trials)} violate a constraint{why}"
        raise NoTrial(f"no trial is complete yet, of {len(trials)}{why}")
    return candidates


def to_optuna(
    trials: Sequence[FrozenTrial], name: str, directions: Sequence[str], storage: Any
) -> optuna.Study:
    """Return an Optuna study with those of ``trials`` that have ended.

    The study is in ``storage``, or in memory if ``storage`` is None. Raises UsageError if the
    storage already has a study of this name.
    """
    import optuna

    try:
        # Call Optuna's own function: Penstock's replaces it while an Optuna script runs.
        create = getattr(optuna.create_study, "__wrapped__", optuna.create_study)
        study = create(
            storage=storage,
            study_name=name,
            directions=[optuna.study.StudyDirection[each.upper()] for each in directions],
        )
    except optuna.exceptions.DuplicatedStudyError as error:
        raise UsageError(f"{storage} has a study {name}: give another storage") from error
    study.add_trials([trial for trial in trials if trial.state.is_finished()])
    return study


def _scores(trial: FrozenTrial, directions: Sequence[str]) -> tuple[float, ...]:
    """Return the trial's values, each with the sign that makes a larger number better."""
    pairs = zip(trial.values, directions, strict=True)
    return tuple(value if way == "maximize" else -value for value, way in pairs)


def _feasible(trial: FrozenTrial) -> bool:
    return all(excess <= 0 for excess in trial.constraints.values())
