"""Super-nets: models with all candidates of their choices. Each batch trains one candidate of each.

Z. Guo, X. Zhang, H. Mu, W. Heng, Z. Liu, Y. Wei, J. Sun, Single Path One-Shot Neural Architecture
Search with Uniform Sampling, ECCV 2020, section 3.2. A *path* has one candidate of each choice,
drawn uniformly and independently. A path is drawn at each forward pass of the outermost model, with
torch's random numbers on the CPU. These are keyed by (trial, epoch, step, shard). So a path depends
on these alone, not on earlier training or on the number of devices, and each shard of a batch has a
path of its own. A candidate that no shard of a batch used has no gradient in that step.

A parameter has the same name as in the model of one configuration (``nas.build``), so that model
can take its weights by name. A value of ``nas.choice`` goes to the user's code, which may give
weights a shape that depends on the value. So such a value must be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ....base.errors import UsageError
from ....tasks.training.paths import Choosing, OpenChoice, Paths
from .cell import Node
from .choices import FromParams, agree, answered_by
from .layers import InputChoice, LayerChoice, Repeat
from .model import ModelSpace, check_class

Model = TypeVar("Model", bound=ModelSpace)


def supernet(
    model: type[Model], params: Mapping[str, Any] | None = None, **arguments: Any
) -> Model:
    """Return the super-net of class ``model``, made with ``arguments``.

    ``params`` fixes the choices for which it has values, and may have other names. In training and
    in evaluation each forward pass draws a new path. Raises UsageError naming a ``nas.choice`` that
    ``params`` lacks, for a model in which no choice is open, and as ``nas.build`` does.
    """
    check_class(model)
    answers = _AllCandidates({} if params is None else params)
    with answered_by(answers):
        built = model(**arguments)
    if not answers.open:
        allowed = "a class with a LayerChoice, InputChoice, Repeat or Cell that params leaves open"
        raise UsageError.refuse("the model", model.__qualname__, allowed)
    built.register_forward_pre_hook(Paths(_choices(built, answers.open)))
    return built


class _AllCandidates:
    """Answers that make all parts of the choices that ``params`` leaves open."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        if not isinstance(params, Mapping):
            raise UsageError.refuse("params", params, "a mapping of names to values")
        self._params = params
        self._given = FromParams(params)
        #: The candidates of each open choice, by label.
        self.open: dict[str, list[Any]] = {}

    def choose(self, label: str, candidates: Sequence[Any], *, seen: bool) -> Any:
        if label in self._params:
            return self._given.choose(label, candidates, seen=seen)
        if seen:
            allowed = (
                f"one of {list(candidates)}, given as in nas.supernet(Net, {{{label!r}: ...}}): a"
                " super-net shares the weights of layers, and the value of a nas.choice may shape"
                " them"
            )
            raise UsageError.refuse(label, "all candidates", allowed)
        agree(label, self.open.setdefault(label, list(candidates)), candidates)
        return candidates[0]

    def part(self, label: str, values: Sequence[Any], make: Callable[[], Any], used: bool) -> Any:
        return make() if used or label in self.open else None


def _choices(model: ModelSpace, candidates: Mapping[str, list[Any]]) -> list[OpenChoice]:
    choosing: dict[str, list[Choosing]] = {label: [] for label in candidates}
    for module in model.modules():
        if isinstance(module, LayerChoice | InputChoice | Repeat | Node):
            choosing.get(module.label, []).append(module)
    return [_open(candidates[label], layers) for label, layers in choosing.items()]


def _open(candidates: list[Any], layers: list[Choosing]) -> OpenChoice:
    choices = [layer for layer in layers if isinstance(layer, LayerChoice)]
    modules = [[layer.get_submodule(str(name)) for layer in choices] for name in candidates]
    nested = any(isinstance(layer, Repeat) for layer in layers)
    return OpenChoice(candidates, layers, modules if choices else (), nested)
