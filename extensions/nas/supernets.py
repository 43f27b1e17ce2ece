"""Sentences on a trial's part in the search of a super-net: as a candidate, or as the super-net.

The strategy of a candidate's study names the state with the weights. So the trial that trained the
super-net is found by that state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...app.common.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, TrialRow
    from ...scheduler.model.study import StudySpec


def weights_of(spec: StudySpec, trial: TrialRow) -> str:
    """Return a sentence about a candidate's super-net and its weights; empty for other trials."""
    of = spec.strategy.supernet
    if of is None:
        return ""
    verb = "was evaluated" if trial.epoch else "is to be evaluated"
    over = "1 batch" if of.batches == 1 else f"{of.batches} batches"
    return (
        f"it is a candidate of a super-net and is not trained: it {verb} with the weights of"
        f" {of.name}, and running statistics that are measured again over {over}"
    )


def candidates_of(reader: Reader, own: Sequence[EpochRow]) -> list[str]:
    """Return sentences on the studies that evaluated candidates with this trial's weights.

    Each sentence has the number of candidates. ``own`` are the trial's epochs. The result is empty
    if no study uses the trial as a super-net.
    """
    after = {row.state_hash: row.epoch for row in own if row.state_hash}
    epochs = {
        study: after[of.state_hash]
        for study, of in reader.supernets().items()
        if of.state_hash in after
    }
    sentences = []
    for study in reader.studies() if epochs else ():
        if study.id in epochs:
            evaluated = sum(trial.epoch > 0 for trial in reader.trials(study.id))
            were = "was" if evaluated == 1 else "were"
            sentences.append(
                f"it is a super-net: {count(evaluated, 'candidate')} {were} evaluated with its"
                f" weights after epoch {epochs[study.id]}, in study {study.name}"
            )
    return sentences
