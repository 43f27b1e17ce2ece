"""Data sets that the trials of a trainer share, encoded where their code has an encoder.

Theory of operation. ``data()`` and ``encoder()`` are called once for each distinct set of the
parameters that they and ``__init__`` read: a trial that would have read the same gets what an
earlier one got. Encoded data sets are found by their encoder's digest (``Activations``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils.data import Dataset

from ...profiling.base.errors import TrialFailed
from ..contracts.contract import Data, TorchTrainable
from ..contracts.pieces import Pieces
from ..sharing.activations import Activations, outline
from ..sharing.frozen_encoder import FrozenEncoder
from ..training.data import in_memory, materialise
from ..training.loop import CPU
from .warm import warm_capacity

_ABSENT = object()


class TrackedParams(Mapping[str, Any]):
    """A trial's parameters from its start, which record the names that were read.

    Reading a later piece raises ``TrialFailed`` (inexact).
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.pieces = Pieces(params)
        self._params = MappingProxyType(self.pieces.start)
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._params:
            self.pieces.refuse(name)
        # A missing name counts as read too: for another trial it may exist.
        self.read[name] = self._params.get(name, _ABSENT)
        return self._params[name]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._params)
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __repr__(self) -> str:
        return repr(dict(self._params))

    def agree_with(self, read: Mapping[str, Any]) -> bool:
        """Whether reading the names of ``read`` here would return the same values."""
        here = {name: self._params.get(name, _ABSENT) for name in read}
        return all(type(here[n]) is type(value) and here[n] == value for n, value in read.items())


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made, its maker, the parameters that were read, and what else was left behind."""

    maker: type[TorchTrainable]
    read: dict[str, Any]
    made: Any
    left: dict[str, Any]
    #: The data for which an encoder was made.
    data: Data | None = None


class SharedData:
    """Data sets by the class that made them and the parameters that it read to make them.

    Only the few most recently used are kept here. A warm trial keeps its own.
    """

    def __init__(self, activations: Activations | None = None, keep: int = 4) -> None:
        """``activations``: those of this trainer; by default as much as warm trials."""
        self._activations = activations or Activations(warm_capacity, None)
        self._keep = keep
        self._loaded: list[_Made] = []
        self._encoders: list[_Made] = []
        #: Data sets, so that none gets another's ``id``, and their first examples.
        self._examples: dict[int, tuple[Dataset[Any], Any]] = {}

    def of(
        self,
        code: TorchTrainable,
        reads: TrackedParams,
        device: torch.device = CPU,
        *,
        kept: bool = True,
        in_memory: bool = True,
    ) -> Data:
        """``code.data()``, or what an earlier trial got that would have read the same.

        It is encoded on ``device`` where the code has an encoder. Attributes that ``data()`` sets
        (a number of classes, say) are set on every trial's object. ``in_memory``: activations may
        be held in memory. If not ``kept``, data that nobody has encoded yet have the shapes only.
        """
        data: Data | None = self._find(self._loaded, code, reads)
        if data is None:
            before = dict(vars(code))
            data = _checked(code.data())
            self._loaded = self._with(self._loaded, code, reads, data, before)
        if type(code).encoder is TorchTrainable.encoder:
            return data
        encoder = self._find(self._encoders, code, reads, data)
        if encoder is None:
            before = dict(vars(code))
            if (module := code.encoder()) is None:
                return data
            encoder = FrozenEncoder(module, device)
            self._encoders = self._with(self._encoders, code, reads, encoder, before, data=data)

        def encoded(plain: Dataset[Any]) -> Dataset[Any]:
            if (found := self._activations.find(plain, encoder)) is not None:
                return found
            if not kept:
                return outline(plain, encoder)
            return self._activations.of(plain, encoder, in_memory=in_memory)

        train, validation = encoded(data.train), encoded(data.validation)
        return Data(train, validation, None if data.test is None else encoded(data.test))

    def read_for(self, data: Dataset[Any]) -> dict[str, Any] | None:
        """The parameters that were read to make what has this training data; None: not known.

        It is not known of data that are encoded, and of data that were given up.
        """
        return next((each.read for each in self._loaded if each.made.train is data), None)

    @staticmethod
    def _find(
        known: list[_Made], code: TorchTrainable, reads: TrackedParams, data: Data | None = None
    ) -> Any:
        """What was made for a trial that read the same. None: nothing was."""
        for each in known:
            if each.maker is type(code) and each.data is data and reads.agree_with(each.read):
                known.remove(each)
                known.append(each)
                vars(code).update(each.left)
                return each.made
        return None

    def _with(
        self,
        known: list[_Made],
        code: TorchTrainable,
        reads: TrackedParams,
        made: Any,
        before: dict[str, Any],
        *,
        data: Data | None = None,
    ) -> list[_Made]:
        """Those that are ``known``, and what ``code`` has made, which had the attributes before."""
        left = {n: v for n, v in vars(code).items() if before.get(n, _ABSENT) is not v}
        return [*known, _Made(type(code), dict(reads.read), made, left, data)][-self._keep :]

    def first_examples(self) -> dict[int, Any]:
        """The first example of each set that is read one by one, by the set's ``id``.

        Each is read once. One that cannot be read is left out.
        """
        found = {}
        data = [each.made for each in self._loaded]
        sets = [each for one in data for each in (one.train, one.validation)]
        for each in (*sets, *self._activations.computed_again()):
            if in_memory(each) is None:
                with suppress(Exception):
                    found[id(each)] = self._examples.get(id(each)) or (each, each[0])
        self._examples = found
        return {name: example for name, (_, example) in found.items()}


def _checked(made: object) -> Data:
    if not isinstance(made, Data):
        kind = type(made).__name__
        raise TrialFailed("data", f"data() must return a penstock.Data, not {kind}")
    return Data(
        materialise(made.train, "training"),
        materialise(made.validation, "validation"),
        None if made.test is None else materialise(made.test, "test"),
    )
