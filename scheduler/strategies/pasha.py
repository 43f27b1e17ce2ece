"""PASHA: ASHA that trains longer only while the ranking still changes (Bohdal et al. 2023).

PASHA begins with the two lowest rungs. Whenever a trial arrives at the top open rung, all trials
there are ranked twice: by their scores at that rung and by their scores at the rung below. If the
two rankings disagree, one more rung is opened (Algorithm 1). The rankings are soft. They agree if,
at every place, the trial of the upper ranking and the trial of the lower ranking have scores at the
lower rung that differ by at most ``epsilon``. ``epsilon`` is the noise of the curves (section 4.2).
To find ``epsilon``, take all pairs of trials at the top open rung in which one trial overtook the
other and was overtaken again. ``epsilon`` is the 90th percentile of the difference between the
scores of such a pair at their last common epoch.

When ASHA has no work left on the open rungs, the best trial of the highest open rung is trained to
the last epoch. The paper trains that trial from scratch; here the trial continues.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from ..model.trial_group import Entry, Pull, TrialGroup
from .asha import Asha
from .base import best_first

#: The percentile of the distances between overtaking trials that counts as noise.
PERCENTILE = 0.90


@dataclass(slots=True)
class Pasha:
    """The state machine of PASHA."""

    #: The ASHA that decides about the rungs opened so far.
    asha: Asha
    #: The epochs of all rungs, including rungs that are not open.
    levels: tuple[int, ...]
    #: Trials on their way to a target.
    running: list[str] = field(default_factory=list)
    #: Number of configurations that the sampler was asked for and has not proposed yet.
    pending: int = 0
    #: The scores by epoch of each trial that has reached the top open rung.
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    #: The distances, in rising order, between trials that overtook each other twice or more.
    noise: list[float] = field(default_factory=list)
    #: The trial chosen to be trained to the last epoch, or an empty string before the choice.
    finalist: str = ""
    #: Trials that were abandoned while paused at a rung. The finalist is none of these trials.
    out: list[str] = field(default_factory=list)
    #: Distinguishes strategies in a snapshot.
    kind: Literal["pasha"] = "pasha"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Return the work that ASHA chooses on the open rungs.

        When ASHA has no work left, train the best trial to the last epoch.
        """
        pull = self.asha.pull(free, ahead, early)
        if not (pull.group or pull.ask or self.running or self.pending or self.finalist):
            pull = self._train_finalist()
        self.pending += pull.ask
        self.running += [entry.trial for entry in pull.group]
        return pull

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train every new trial to the bottom rung."""
        self.pending = 0 if exhausted else self.pending - len(trials)
        self.running += trials
        return self.asha.proposed(trials, exhausted=exhausted)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Note the score at the trial's rung, and open the next rung if the rankings disagree."""
        if trial in self.running:
            self.running.remove(trial)
        opened = self.asha.levels
        if epoch not in opened:
            return ()  # the best trial's last epoch
        self.asha.reached(trial, epoch, curve)
        if epoch == opened[-1] and len(opened) < len(self.levels):
            self._record_noise(trial, curve)
            if not self._stable():
                self.asha.levels = self.levels[: len(opened) + 1]
                self.curves, self.noise = {}, []
        return ()

    def abandoned(self, trial: str) -> TrialGroup:
        """Promote the trial no further.

        If the trial was the finalist, ``pull`` chooses another finalist.
        """
        if trial in self.running:
            self.running.remove(trial)
        else:
            self.out.append(trial)
            self.asha.abandoned(trial)
        if trial == self.finalist:
            self.finalist = ""
            for scores in self.asha.scores:
                scores.pop(trial, None)
        return ()

    def _train_finalist(self) -> Pull:
        if len(self.asha.levels) == len(self.levels):
            return Pull()
        highest = next((scores for scores in reversed(self.asha.scores) if scores), {})
        candidates = (trial for trial in best_first(highest) if trial not in self.out)
        self.finalist = next(candidates, "")
        return Pull((Entry(self.finalist, self.levels[-1]),)) if self.finalist else Pull()

    def _record_noise(self, trial: str, curve: Mapping[int, float]) -> None:
        for other in self.curves.values():
            common = sorted(curve.keys() & other.keys())
            gaps = [curve[epoch] - other[epoch] for epoch in common]
            signs = [gap > 0 for gap in gaps if gap]
            overtakings = sum(a != b for a, b in pairwise(signs))
            if overtakings >= 2:
                insort(self.noise, abs(gaps[-1]))
        self.curves[trial] = dict(curve)

    def _stable(self) -> bool:
        top = len(self.asha.levels) - 1
        below = self.asha.scores[top - 1]  # without those that their user has sent past it
        upper = [trial for trial in best_first(self.asha.scores[top]) if trial in below]
        lower = {trial: below[trial] for trial in upper}
        epsilon = self.noise[int(PERCENTILE * (len(self.noise) - 1))] if self.noise else 0.0
        pairs = zip(upper, best_first(lower), strict=True)
        return all(abs(lower[first] - lower[second]) <= epsilon for first, second in pairs)
