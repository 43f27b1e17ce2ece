"""``OneShot``: candidates of a trained super-net, as a strategy of an ordinary study.

Theory of operation. The study of a super-net is an ordinary one, whose ``model()`` is
``nas.supernet``. Its state is in the store. The study of the candidates is an ordinary one, too,
with any sampler over ``nas.space``: each trial is a model of ``nas.build``, and has one epoch. That
epoch is no training: the model takes over its weights out of the super-net, measures running
statistics anew, and is evaluated. So the value of a trial is a value like any other, and the trial
begins at a state that never changes, found by its hash: whatever is killed, it comes out again.
Which super-net it is is part of the study's strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiling.base.errors import UsageError
from ...scheduler.model.study import StrategySpec, SuperNet
from ..common.validation import whole
from .trained import trained_model

if TYPE_CHECKING:
    from ..study.study import Study


def OneShot(  # noqa: N802 - reads as the value it is, as the other strategies do
    supernet: Study, *, trial: int | None = None, batches: int = 20
) -> StrategySpec:
    """Evaluate each configuration with weights of a trained super-net, without training it.

    ``supernet`` is the study that has trained it, its best trial or trial number ``trial``. Running
    statistics of normalising layers are measured anew over ``batches`` batches of the training
    data, 1 or more, drawn as those of a first epoch. The state of the super-net stays in the store
    once there is a study of its candidates. Raises UsageError for a study without one best trial,
    and for a trial whose state is not kept.
    """
    from ..study.study import Study

    if not isinstance(supernet, Study):
        raise UsageError.refuse("OneShot.supernet", supernet, "a study that has trained one")
    measured = whole("OneShot.batches", batches, low=1)
    supernet._handle.check_submitted()
    reader = supernet._handle.reader()
    found = trained_model(reader, reader.study(supernet.id), trial)
    name = "trial {trial} of {study} after epoch {epoch}".format_map(found.trained)
    return StrategySpec(
        "full", max_epochs=1, supernet=SuperNet(name, found.uri, found.state_hash, measured)
    )
