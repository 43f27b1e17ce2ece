"""The study and the trial that an objective sees in a trainer: Optuna's own classes.

The study reads and writes through ``TrainerStorage``. Its sampler and pruner are the user's, or, if
the scheduler samples for the study, ``AskingSampler`` and no pruner.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any, NoReturn

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ...base.errors import UsageError
from ...base.wording import worded
from ..contracts.code import is_imported
from .distributions import categorical, to_text
from .left import Left
from .log_records import Collector
from .optimizers import guard
from .storage import TrainerStorage
from .wire import check_name, is_plain


def unbind(sampler: Any) -> None:
    """Make a sampler forget the id that its study had when the sampler was pickled.

    Optuna's samplers keep the parameters that all trials share, and refuse a study of another id.
    It is the same study here, but the study's id differs in each process.
    """
    for each in list(getattr(sampler, "__dict__", {}).values()):
        if isinstance(each, BaseSampler):
            unbind(each)
        elif getattr(each, "_study_id", None) is not None:
            each._study_id = None


class TrainerStudy(optuna.Study):
    """The study to which the running trial belongs."""

    def __init__(self, name: str, storage: TrainerStorage, sampler: Any, pruner: Any) -> None:
        super().__init__(name, storage, sampler, pruner)
        unbind(sampler)
        guard()
        self.trainer_storage = storage
        #: The slots whose values the study's trials hand back to the script; None if there are
        #: none.
        self.left: Left | None = None
        #: The collector of the trials' log records; None if the script has no handlers.
        self.collector: Collector | None = None
        #: The worker's id of the last update of the study's history that was read.
        self.history_read = ""
        self._has_drawn = False

    def take_over(self, number: int) -> bool:
        """Return True if the sampler takes the study over. Call this before a draw for ``number``.

        A sampler takes over if it has drawn nothing yet, but another process has: for an earlier
        trial, or for this one in an attempt that was lost. It is reseeded then, since two samplers
        must not draw the same.
        """
        if self._has_drawn:
            return False
        self._has_drawn = True
        takes_over = number > 0 or bool(self.trainer_storage.history.trials[number].params)
        if takes_over:
            self.sampler.reseed_rng()
        return takes_over

    def optimize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ``RuntimeError``, as Optuna does in an objective."""
        raise RuntimeError("Nested invocation of `Study.optimize` method isn't allowed.")

    def stop(self) -> None:
        """Have the scheduler start no more trials. Running trials continue to their end."""
        self.trainer_storage.reads.linked().request("stop")

    def forget_cache(self) -> None:
        """Empty the cache in which Optuna keeps all trials while a trial runs in this thread."""
        self._thread_local.cached_all_trials = None


class OwnStudy(optuna.Study):
    """Stands for the study in code that was sent to trainers: it acts as the running trial's study.

    It has no state of its own, since one trainer may run a study with several samplers in turn.
    """

    def __init__(self) -> None:
        """Make a stand-in without fields. Every attribute is read from the study in ``running``."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__reduce_ex__"):
            return object.__getattribute__(self, name)
        if not running:
            raise RuntimeError("the study of an objective is there while the objective runs")
        return getattr(running[-1], name)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return OwnStudy, ()


#: The study of the trial that runs in this trainer; empty before the first trial.
running: list[TrainerStudy] = []


def guard_imports() -> None:
    """Keep the import of a user's script from optimising any study, plain Optuna's included."""
    plain = optuna.Study.optimize
    if plain.__module__ == __name__:
        return

    @wraps(plain, assigned=("__doc__", "__name__", "__qualname__"))
    def optimize(self: optuna.Study, func: Any, *args: Any, **kwargs: Any) -> None:
        if not is_imported(func):
            plain(self, func, *args, **kwargs)

    optuna.Study.optimize = optimize  # type: ignore[method-assign]  # in trainers alone


class ObjectiveTrial(optuna.Trial):
    """The trial that an objective gets."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of ``choices``, which may be any objects: the very object that was given."""
        value = self._suggest(name, categorical(list(choices)))
        same = [choice for choice in choices if choice is value or _alike(choice, value)]
        return same[0] if same else value

    def should_prune(self) -> bool:
        """Return the pruner's answer; False where an earlier attempt continued and was accepted."""
        assert isinstance(self.study, TrainerStudy)
        link = self.study.trainer_storage.reads.link
        return not (link is not None and link.repeats()) and super().should_prune()

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        check_name("the name of a parameter", name)
        value = super()._suggest(name, distribution)
        if isinstance(distribution, CategoricalDistribution):
            return value
        # To Optuna's internal form and back: JSON may have turned 1.0 into 1.
        return distribution.to_external_repr(distribution.to_internal_repr(value))


class AskingSampler(BaseSampler):
    """Asks the scheduler to sample each parameter, when the objective asks for it."""

    def __init__(self, storage: TrainerStorage) -> None:
        self._storage = storage

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        if isinstance(param_distribution, CategoricalDistribution):
            _check_choices(param_name, param_distribution.choices)
        return self._storage.reads.linked().suggest(param_name, to_text(param_distribution))


def _alike(choice: Any, value: Any) -> bool:
    """Return True if ``value`` equals ``choice``. 1, 1.0 and True count as different."""
    scalars = isinstance(choice, int | float) and isinstance(value, int | float)
    return bool(choice == value) and (type(choice) is type(value) or not scalars)


def _check_choices(name: str, choices: Sequence[Any]) -> None:
    bad = [choice for choice in choices if not is_plain(choice)]
    if bad:
        allowed = "None, bool, int, finite float or str (UTF-8) where the scheduler samples"
        raise UsageError.refuse(f"choices of {worded(name)}", bad[0], allowed)
