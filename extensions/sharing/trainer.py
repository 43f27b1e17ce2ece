"""The trainer's end of sharing: data that is computed or read once for several of its trials.

Theory of operation. A trial whose code has an encoder reads its data in encoded form
(``activations``). Like ``data()``, ``encoder()`` is called once for each distinct set of the
parameters that it and ``__init__`` read. If trials have equal keys of random numbers, a trial may
get batches that another trial in its lane has read (``streams``), or that another trainer on its
node has read (``node_batches``).
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ...tasks.contracts.contract import Data, TorchTrainable
from ...tasks.trainer.hooks import Epoch, Hook, Loaded, Parts, Segment
from ...tasks.trainer.made_once import MadeOnce
from ...tasks.training.determinism import machine_signature
from .activations import Activations, outline
from .frozen_encoder import FrozenEncoder
from .kept_files import KeptFiles
from .node_trials import NodeTrials
from .streams import Streams

if TYPE_CHECKING:
    from torch.utils.data import Dataset

#: Largest ratio of an epoch's time with one other trial to its time alone for which sharing pays.
FASTER = 0.95


def hook(parts: Parts) -> Hook:
    """Return the hook of one trainer."""
    files = None if parts.kept is None else KeptFiles(parts.kept)
    activations = Activations(parts.capacity, files)
    capacity = partial(parts.capacity, 0)
    return Sharing(activations, Streams(capacity), NodeTrials(parts.kept, capacity))


class Sharing(Hook):
    """Data that the trials of one trainer share."""

    def __init__(self, activations: Activations, streams: Streams, of_node: NodeTrials) -> None:
        self._activations = activations
        self._streams = streams
        self._of_node = of_node
        self._encoders = MadeOnce()
        #: Number of data sets that had been encoded when a trial was last resumed.
        self._encodings = 0

    def data(self, loaded: Loaded) -> Data | None:
        """Return the data as encoded by the code's encoder; None if the code has no encoder.

        If the data are neither kept nor encoded yet, the result has only their shapes.
        """
        code, data = loaded.code, loaded.data
        if type(code).encoder is TorchTrainable.encoder:
            return None

        def made() -> FrozenEncoder | None:
            module = code.encoder()
            return None if module is None else FrozenEncoder(module, loaded.device)

        encoder: FrozenEncoder | None = self._encoders.get(code, loaded.reads, made, data)
        if encoder is None:
            return None

        def encoded(plain: Dataset[Any]) -> Dataset[Any]:
            if (encoded_data := self._activations.find(plain, encoder)) is not None:
                return encoded_data
            if not loaded.kept:
                return outline(plain, encoder)
            return self._activations.of(plain, encoder, in_memory=loaded.in_memory)

        train, validation = encoded(data.train), encoded(data.validation)
        return Data(train, validation, None if data.test is None else encoded(data.test))

    def resumed(self, segment: Segment) -> None:
        """Restart the measurement of the trial's memory if data were encoded.

        The activations belong to the process, not to the trial.
        """
        if self._activations.encodings > self._encodings:
            self._encodings = self._activations.encodings
            segment.run.memory.begin()

    def before(self, segment: Segment) -> None:
        """Let the trial get batches that other trials in its lane or on its node have read."""
        task, training = segment.task, segment.training
        if task.replicate is None:
            return
        training.batches = of_node = self._of_node.batches(
            task.trial, task.study, lambda: _source(segment)
        )
        if segment.run.turn is not None:
            self._streams.join(task.trial, training, of_node)

    def report(self, epoch: Epoch) -> None:
        """Report for how many trials batches were read once, and the epoch's time without that."""
        trial, run = epoch.segment.task.trial, epoch.segment.run
        epoch.values["readers"] = 2 * self._of_node.found(trial, run.remarks)
        if epoch.values.get("together") == 0:
            readers, alone = self._streams.shared(trial, epoch.seconds, FASTER)
            epoch.values |= {"readers": readers, "alone": alone}

    def forget(self, trial: str) -> None:
        """Drop the data that are kept for a trial that is no longer in memory."""
        self._streams.forget(trial)
        self._of_node.forget(trial)

    def study_over(self, study: str) -> None:
        """Drop activations that no trial uses, and the study's files in the node's memory."""
        self._activations.release()
        self._of_node.study_over(study)


def _source(segment: Segment) -> str | None:
    """Return a text that describes everything on which a trial's data depends; None if unknown."""
    task, training = segment.task, segment.training
    read = segment.maker.read_for(training.data.train)
    if read is None:
        return None
    machine = machine_signature(training.device)
    names = sorted((name, repr(value)) for name, value in read.items())
    kind = type(training.code).__qualname__
    return f"{task.study} {task.code.digest} {kind} {names} {machine} {sys.prefix}"
