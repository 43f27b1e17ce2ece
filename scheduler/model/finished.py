"""Studies that are over, as events tell the engine of them, which has forgotten or never seen them.

A study that another ledger has run to its end is told in one event (``PastTrial``) and never comes
to life: the engine keeps that its id and its name are taken, and hands the rest to the ledger's
readers. One that ended here and is extended goes on from what the ledger has of it (``Past``).
"""

from __future__ import annotations

from dataclasses import dataclass

from .decisions import Member, Parent
from .study import Metrics, Params, trial_id
from .trial import AcceptedEpoch, Failure, Origin, Trial, TrialState


@dataclass(frozen=True, slots=True)
class PastTrial:
    """A trial as its own ledger had it at the end; see ``Trial`` for what the fields mean.

    ``drawn`` are the distributions (Optuna's JSON) of parameters that were drawn while the
    objective ran; ``durables`` the states in its store, and when each was written (seconds).
    """

    number: int
    state: TrialState
    params: Params
    epoch: int
    target: int
    value: float | None
    members: tuple[Member, ...]
    created_at: float
    finished_at: float | None
    failure: Failure | None = None
    drawn: tuple[tuple[str, str], ...] = ()
    epochs: tuple[AcceptedEpoch, ...] = ()
    durables: tuple[tuple[Parent, float], ...] = ()
    further: tuple[float, ...] = ()
    constraints: Metrics = ()
    origin: Origin | None = None

    def record(self, study: str) -> Trial:
        """As a trial of the study with this id."""
        return Trial(
            id=trial_id(study, self.number),
            study=study,
            number=self.number,
            params=self.params,
            created_at=self.created_at,
            state=self.state,
            target=self.target,
            epoch=self.epoch,
            value=self.value,
            members=self.members,
            failure=self.failure,
            finished_at=self.finished_at,
            further=self.further,
            constraints=self.constraints,
            origin=self.origin,
        )


@dataclass(frozen=True, slots=True)
class Past:
    """A study of this ledger that was over: when it was created (seconds), its trials by number."""

    created_at: float
    trials: tuple[Trial, ...]
