"""The scheduler's end: lets one trial train the epochs that several trials have in common.

Theory of operation. A common prefix (``chain``) of several trials needs to be trained only once.
The trial that trains it is the *trainee*. Another trial at the same epoch waits as its *companion*:
it is in no queue and takes no slot. Each accepted epoch of the trainee also becomes the companion's
(``prefixes``). A companion that has reached its target is treated like any trial that has. A
companion whose next epoch differs from the trainee's goes into the queue. If the trainee pauses,
fails, or is cancelled, the first companion takes its place. A trial that comes later takes over the
epochs trained before.

Companions advance at the end of each event, by all epochs that the event has brought to other
trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Parent, Segment
from ...scheduler.model.events import EpochReported, StudyReopened, StudySubmitted
from ...scheduler.model.study import Params, StudySpec
from ...scheduler.model.trial import Trial, TrialState
from ...scheduler.state.extensions import Begins, Extension
from ...scheduler.state.state import Attempt, StudyState
from .chain import has_prefixes, link_at, links_of
from .prefixes import Prefixes
from .state import NAME, OfStudy, OfTrial, State, forget_study, known_of

#: The type of the extension's state.
STATE = State
#: Fields of a study in version 0.2 that belong to this extension.
_OF_STUDIES = ("companions", "apart", "earlier", "apart_from_others")
#: Number of companions at which a study is not asked for more trials.
MAX_COMPANIONS = 256


def plug(parts: Parts) -> Extension:
    """Return the extension by which common epochs are trained once."""
    companions = _Companions(parts)
    return Extension(
        name=NAME,
        needed_by=has_prefixes,
        tells_trainers=True,
        on_begun=companions.on_begun,
        keeps=companions.keeps,
        aside=companions.aside,
        has_enough=companions.has_enough,
        copies=companions.copies,
        on_moved=companions.on_moved,
        on_durable=companions.on_durable,
        on_accepted=companions.on_accepted,
        on_machine_known=companions.on_machine_known,
        on_over=companions.on_over,
        forget=lambda study: forget_study(parts.core.state, study),
    )


def convert(snapshot: dict[str, Any]) -> None:
    """Move the extension's fields of studies and trials in a snapshot of 0.2 to its own state."""
    studies: dict[str, dict[str, Any]] = {}
    for name, study in snapshot["studies"].items():
        fields = {each: study.pop(each) for each in _OF_STUDIES if each in study}
        if fields and study["spec"].get("seeding") == "shared":
            studies[name] = fields
    for name, trial in snapshot["trials"].items():
        own = {each: trial.pop(each, None) for each in OfTrial.__slots__}
        if any(own.values()) and trial["study"] in studies:
            fields = studies[trial["study"]].setdefault("trials", {})
            fields[name] = {each: value for each, value in own.items() if value}
    if studies:
        snapshot["ext"][NAME] = {"version": 1, "studies": studies}


def alike_at(spec: StudySpec, number: int, params: Params) -> Callable[[int], str] | None:
    """Return a function that maps an epoch to a key: trials with equal keys have equal bits there.

    Returns None if no trials of the study can have bits in common.
    """
    if not has_prefixes(spec):
        return None
    chain = links_of(spec, number, dict(params))

    def name(epoch: int) -> str:
        link = link_at(chain, epoch)
        assert link is not None
        return link.key

    return name


class _Companions:
    """Lets trials wait while other trials train the epochs that they have in common."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state
        self._checkpoints = parts.checkpoints
        self._proposals = parts.proposals
        self._prefixes = Prefixes(parts.core)

    def on_begun(self, study: StudyState, event: Begins) -> None:
        extension_state = self._state.ext.setdefault(NAME, State())
        own = extension_state.studies[study.spec.id] = OfStudy()
        if not isinstance(event, StudyReopened):
            own.earlier = [*event.earlier]
        past = None if isinstance(event, StudySubmitted) else event.past
        for trial in () if past is None else past.trials:
            if trial.reports or trial.taken:
                own.trials[trial.id] = OfTrial(
                    dict(trial.reports), dict(trial.taken), dict(trial.holders)
                )
        self._prefixes.compare_all(study)

    def on_over(self, study: StudyState) -> None:
        self._prefixes.study_over(study)

    def on_accepted(
        self, study: StudyState, trial: Trial, attempt: Attempt, event: EpochReported
    ) -> None:
        self._prefixes.record(study, trial, event.metrics)

    def on_durable(self, name: str, epoch: int, states: Sequence[Parent]) -> None:
        trial = self._state.trials.get(name)
        if trial is None:
            self._prefixes.others.states_changed(name, tuple(states))
            return
        study = self._state.studies[trial.study]
        if study.spec.id not in known_of(self._state).studies:
            return
        for other in self._prefixes.with_state(study, trial, epoch):
            self._checkpoints.share(study, other, states)

    def copies(self, study: StudyState, trial: Trial, segment: Segment) -> tuple[int, ...]:
        return self._prefixes.copies(study, trial, segment)

    def has_enough(self, study: StudyState) -> bool:
        return len(self._of(study)) >= MAX_COMPANIONS

    def aside(self, study: StudyState) -> Iterator[tuple[str, str]]:
        for name in self._of(study):
            companion = self._prefixes.companion(study, self._state.trials[name])
            if companion is not None:
                yield name, companion.why

    def keeps(self, study: StudyState, trial: Trial, after: Attempt | None) -> bool:
        """Give the trial trained epochs; return True if it waits while another trains the next.

        A trial that has just trained takes over epochs only if the study has a data token, and does
        not wait.
        """
        if study.spec.system_fixed and study.system is None:
            return False  # its trials wait for the system configuration, then enter again
        if after is None or study.spec.data_token:
            self._take_over(study, trial)
        if after is not None or trial.epoch >= trial.target:
            return False
        if self._prefixes.trainee_of(study, trial) is None:
            return False
        trial.since = self._core.at
        self._of(study).append(trial.id)
        return True

    def on_moved(self, study: StudyState) -> None:
        if self._advance(study) or not (study.at_work or study.asks):
            self._proposals.settle(study)
            self._core.offer_slots()

    def _advance(self, study: StudyState) -> bool:
        """Give companions the epochs trained since the last call; release those that need not wait.

        Returns True if any trial is no longer a companion.
        """
        some, companions = False, self._of(study)
        # If one companion still waits for its trainee, all others with the same key do.
        waited_at = set[tuple[str, int]]()
        for name in list(companions):
            trial = self._state.trials[name]
            if trial.state is TrialState.WAITING:
                if self._prefixes.next_key(study, trial) in waited_at:
                    continue
                self._take_over(study, trial)
                if trial.epoch < trial.target and self._prefixes.trainee_of(study, trial):
                    waited_at.add(self._prefixes.next_key(study, trial))
                    continue
            companions.remove(name)
            some = True
            if trial.state is TrialState.WAITING and trial.epoch < trial.target:
                self._proposals.wait(trial, first=True)
            elif trial.state is TrialState.WAITING:
                self._proposals.enter(study, self._proposals.reached(study, trial))
        return some

    def on_machine_known(self, study: StudyState) -> None:
        """Give queued trials the epochs that other studies have trained on the same machine."""
        if not study.spec.data_token:
            return
        for name in list(self._state.ready):
            trial = self._state.trials[name]
            if trial.study != study.spec.id or name not in self._state.ready:
                continue
            self._take_over(study, trial)
            if trial.epoch >= trial.target:
                self._state.ready.remove(name)
                self._proposals.enter(study, self._proposals.reached(study, trial))

    def _take_over(self, study: StudyState, trial: Trial) -> None:
        """Give the trial its next epochs that others have trained, with their durable states."""
        for source in self._prefixes.take_over(study, trial):
            self._checkpoints.share(study, trial, source.parents)

    def _of(self, study: StudyState) -> list[str]:
        return known_of(self._state).studies[study.spec.id].companions
