"""Data sets that the trials of a trainer share.

Theory of operation. ``data()`` is called once for each distinct set of the parameters that it and
``__init__`` read: a trial that would read the same values gets an earlier trial's data. Hooks may
give trials another form of the data (``Hook.data``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils.data import Dataset

from ...base.errors import TrialFailed
from ..contracts.contract import Data, TorchTrainable
from ..training.data import in_memory, materialise
from ..training.loop import CPU
from .hooks import Hooks, Loaded
from .made_once import MadeOnce, TrackedParams


class SharedData:
    """Data sets by the class that made them and the parameters read to make them.

    Only the few most recently used are kept here. A warm trial keeps its own.
    """

    def __init__(self, hooks: Hooks | None = None, keep: int = 4) -> None:
        self._hooks = hooks or Hooks()
        self._loaded = MadeOnce(keep)
        #: Other forms of data sets, kept as long as trials use them.
        self._formed: WeakValueDictionary[int, Dataset[Any]] = WeakValueDictionary()
        #: Data sets with their first examples. The data sets are kept so that no other gets the
        #: same ``id``.
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
        """Return ``code.data()``, or the data of an earlier trial that read the same parameters.

        Attributes that ``data()`` sets (a number of classes, say) are set on every trial's object.
        The other arguments are as in ``Loaded``. Raises ``TrialFailed`` for code with an encoder if
        no hook encodes.
        """
        data: Data = self._loaded.get(code, reads, lambda: _checked(code.data()))
        formed = self._hooks.data(Loaded(code, reads, data, device, kept, in_memory))
        if formed is None:
            if type(code).encoder is not TorchTrainable.encoder and not self._hooks.form_data:
                raise TrialFailed(
                    "code",
                    f"{type(code).__name__}.encoder() needs the extension sharing, which this"
                    " trainer does not have",
                )
            return data
        for each in (formed.train, formed.validation):
            self._formed[id(each)] = each
        return formed

    def read_for(self, data: Dataset[Any]) -> dict[str, Any] | None:
        """Return the parameters that were read to make this training data; None if not known.

        They are not known for other forms of data, and for data that are no longer kept.
        """
        return next((each.read for each in self._loaded if each.made.train is data), None)

    def first_examples(self) -> dict[int, Any]:
        """Return the first example of each set that is read one by one, by the set's ``id``.

        Each set is read once. A set that cannot be read is left out.
        """
        examples = {}
        data = [each.made for each in self._loaded]
        sets = [each for pair in data for each in (pair.train, pair.validation)]
        for each in (*sets, *self._formed.values()):
            if in_memory(each) is None:
                with suppress(Exception):
                    examples[id(each)] = self._examples.get(id(each)) or (each, each[0])
        self._examples = examples
        return {name: example for name, (_, example) in examples.items()}


def _checked(made: object) -> Data:
    if not isinstance(made, Data):
        kind = type(made).__name__
        raise TrialFailed("data", f"data() must return a penstock.Data, not {kind}")
    return Data(
        materialise(made.train, "training"),
        materialise(made.validation, "validation"),
        None if made.test is None else materialise(made.test, "test"),
    )
