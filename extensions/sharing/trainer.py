"""The trainer's end of sharing: what its trials compute or read of their data once.

Theory of operation. A trial whose code has an encoder reads its data as that encodes them
(``activations``). ``encoder()`` is called once for each distinct set of the parameters that it and
``__init__`` read, as ``data()`` is. Where trials have equal keys of random numbers, those of a lane
get batches that one of them has read (``streams``), and those of a node batches that any of its
trainers has read (``node_batches``).
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

#: With one other trial an epoch may take so much of what it takes alone, or sharing does not pay.
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
        #: Number of data sets that had been encoded when a trial was resumed last.
        self._encodings = 0

    def data(self, loaded: Loaded) -> Data | None:
        """Return the data as the code's encoder encodes them; None: it has none.

        If they are not kept, data that nobody has encoded yet have the shapes only.
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
            if (found := self._activations.find(plain, encoder)) is not None:
                return found
            if not loaded.kept:
                return outline(plain, encoder)
            return self._activations.of(plain, encoder, in_memory=loaded.in_memory)

        train, validation = encoded(data.train), encoded(data.validation)
        return Data(train, validation, None if data.test is None else encoded(data.test))

    def resumed(self, segment: Segment) -> None:
        """Begin the trial's memory anew after encoding: activations are the process's."""
        if self._activations.encodings > self._encodings:
            self._encodings = self._activations.encodings
            segment.run.memory.begin()

    def before(self, segment: Segment) -> None:
        """Have the trial get batches that others have read, in its lane and on its node."""
        task, training = segment.task, segment.training
        if task.replicate is None:
            return
        training.batches = of_node = self._of_node.batches(
            task.trial, task.study, lambda: _source(segment)
        )
        if segment.run.turn is not None:
            self._streams.join(task.trial, training, of_node)

    def report(self, epoch: Epoch) -> None:
        """Say for how many trials batches were read once, and what the epoch takes alone."""
        trial, run = epoch.segment.task.trial, epoch.segment.run
        epoch.values["readers"] = 2 * self._of_node.found(trial, run.remarks)
        if epoch.values.get("together") == 0:
            readers, alone = self._streams.shared(trial, epoch.seconds, FASTER)
            epoch.values |= {"readers": readers, "alone": alone}

    def forget(self, trial: str) -> None:
        """Drop what is kept of a trial that is not in memory any more."""
        self._streams.forget(trial)
        self._of_node.forget(trial)

    def study_over(self, study: str) -> None:
        """Drop what no trial has any more, and what is in memory of the node for the study."""
        self._activations.release()
        self._of_node.study_over(study)


def _source(segment: Segment) -> str | None:
    """Return what decides the data of a trial of this study; None where that is not known."""
    task, training = segment.task, segment.training
    read = segment.maker.read_for(training.data.train)
    if read is None:
        return None
    machine = machine_signature(training.device)
    names = sorted((name, repr(value)) for name, value in read.items())
    kind = type(training.code).__qualname__
    return f"{task.study} {task.code.digest} {kind} {names} {machine} {sys.prefix}"
