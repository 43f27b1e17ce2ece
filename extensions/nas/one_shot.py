"""``OneShot``: the strategy of a study that evaluates candidates of a trained super-net.

Theory of operation. The study of a super-net is an ordinary one, whose ``model()`` returns
``nas.supernet``. The state of the super-net is in the store. The study of the candidates is an
ordinary one, too, with any sampler over ``nas.space``: each trial has a model made by
``nas.build``, and one epoch. Nothing is trained in that epoch: the model takes its weights from the
super-net, measures its running statistics again, and is evaluated. So the value of such a trial is
a value like any other. The trial starts from a state that never changes, identified by its hash, so
the value is the same after any process is killed. The strategy of the candidates' study names the
super-net.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...app.common.validation import whole
from ...base.errors import UsageError
from ...scheduler.model.study import StrategySpec, SuperNet
from .trained import TrainedModel, trained_model

if TYPE_CHECKING:
    from ...app.client.study.study import Study


def OneShot(  # noqa: N802 - reads as the value it is, as the other strategies do
    supernet: Study | str, *, trial: int | None = None, batches: int = 20
) -> StrategySpec:
    """Evaluate each configuration with the weights of a trained super-net, without training.

    ``supernet`` is the study that has trained the super-net, or the study's name or id. The weights
    are those of that study's best trial, or of trial number ``trial``. Running statistics of
    normalising layers are measured again over ``batches`` batches (1 or more) of the training data,
    drawn as in a first epoch. The state of the super-net is kept in the store as long as a study of
    its candidates exists. Raises UsageError for a study without a single best trial, for a trial
    whose state is not kept, for a study whose code makes no super-net, and for an imported study.
    If the study's code cannot be imported here, it is not checked; candidates whose weights are not
    in the state then fail.
    """
    from ...app.client.study.study import Study

    measured = whole("OneShot.batches", batches, low=1)
    study = _named(supernet) if isinstance(supernet, str) else supernet
    if not isinstance(study, Study):
        allowed = "a study that has trained one, or its name"
        raise UsageError.refuse("OneShot.supernet", supernet, allowed)
    study._handle.check_submitted()
    reader = study._handle.reader()
    if reader.imported(study.id) is not None:
        raise _refused(
            study.study_name,
            "it was imported, and every worker would read its weights from where its file says:"
            " train the super-net here",
        )
    try:
        model = trained_model(reader, reader.study(study.id), trial)
    except UsageError as error:
        if error.field != "study":
            raise
        raise _refused(study.study_name, str(error)) from error
    if not _makes_supernet(model):
        raise _refused(
            study.study_name,
            f"{model.name}.model() makes no super-net: have it return nas.supernet(Net,"
            " self.params), train that in a study, and give that study",
        )
    name = "trial {trial} of {study} after epoch {epoch}".format_map(model.trained)
    return StrategySpec(
        "full", max_epochs=1, supernet=SuperNet(name, model.uri, model.state_hash, measured)
    )


def _makes_supernet(found: TrainedModel) -> bool:
    """Return True if the trial's model is a super-net or contains one.

    Also returns True if the study's code cannot be run here.
    """
    import torch

    from ...tasks.training.paths import paths_of
    from .rebuilt import made

    try:
        code = found.code()
        try:
            with torch.device("meta"):  # without memory for its weights
                model = made(code, found.trained)
        except Exception:  # code that reads a tensor's values needs them; others fail again
            model = made(code, found.trained)
    except Exception:  # the user's code, or it is not here
        return True
    return bool(paths_of(model))


def _named(name: str) -> Study:
    """Return the study of this name or id.

    Raises UsageError, naming the argument, if there is no such study.
    """
    from ...app.client.study.create import load_study
    from ...app.host.settings import load
    from ...app.server.services.ledger_location import ledger_reader

    if ledger_reader(load()).is_empty():
        raise _refused(name, "nothing has run here yet")
    try:
        return load_study(name)
    except UsageError as error:
        raise _refused(name, str(error)) from error


def _refused(supernet: str, why: str) -> UsageError:
    return UsageError(f"OneShot.supernet = {supernet!r} is refused: {why}", "OneShot.supernet")
