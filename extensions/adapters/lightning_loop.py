"""Lightning's own Trainer in an epoch function, so that a module may use any of its features.

The store keeps Lightning's own checkpoint as plain values, without a pickle. Lightning resumes
loops, optimizers, schedules and the states of callbacks from the checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ...tasks.contracts.contract import EpochTrial
from .passes import Passes, missing

try:
    from pytorch_lightning import Callback, LightningModule, Trainer
except ImportError as error:
    raise missing("lightning", error) from error


class LightningCallback(Callback):
    """Makes the epochs of a Lightning ``Trainer`` those of a trial, in an epoch function::

        report = penstock.LightningCallback(trial)
        trainer = Trainer(max_epochs=-1, callbacks=[report], default_root_dir=report.folder, ...)
        trainer.fit(module, data, ckpt_path=report.checkpoint)

    All values that were logged for the epoch are reported under their names. ``folder`` is a
    temporary folder on the node. ``checkpoint`` is the file to resume from; None at the trial's
    start.
    """

    def __init__(self, trial: EpochTrial) -> None:
        self._passes = Passes(trial)
        self._began = False
        self.folder = self._passes.folder()
        self.checkpoint: str | None = None
        if (state := self._passes.take()) is not None:
            self.checkpoint = self._file()
            torch.save(state, self.checkpoint)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # The order of the first epoch's examples is drawn before on_train_epoch_start.
        self._passes.begin()
        self._began = True

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._began:
            self._passes.begin()
        self._began = False
        self._passes.check(
            trainer.current_epoch + 1, "call trainer.fit(ckpt_path=report.checkpoint)"
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        file = self._file()
        trainer.save_checkpoint(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
        self._passes.report(trainer.callback_metrics, state)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._passes.clean_up()

    def _file(self) -> str:
        return str(Path(self.folder) / "penstock.ckpt")
