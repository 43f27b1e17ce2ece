"""The Trainer of Hugging Face's transformers in an epoch function.

The store keeps the checkpoint folder that the Trainer itself writes after each epoch, file by file,
and the Trainer resumes from that folder. Two things are left out: ``training_args.bin``, which is a
pickle that resuming does not read, and the states of the random generators, since Penstock seeds
these for each epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...base.errors import UsageError
from ...tasks.contracts.contract import EpochTrial
from .passes import Passes, missing

try:
    from transformers import (
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise missing("huggingface", error) from error

_LEFT_OUT = ("training_args.bin", "rng_state.pth")


class HuggingFaceCallback(TrainerCallback):
    """Makes the epochs of a ``transformers.Trainer`` those of a trial::

        report = penstock.HuggingFaceCallback(trial)
        arguments = TrainingArguments(report.folder, save_strategy="epoch", ...)
        trainer = Trainer(model, arguments, callbacks=[report], ...)
        trainer.train(resume_from_checkpoint=report.checkpoint)

    The values that the Trainer logs in an epoch are reported under the Trainer's names, such as
    ``eval_loss``. ``folder`` is a temporary folder on the node. ``checkpoint`` is the checkpoint
    folder to resume from; None at the trial's start.
    """

    def __init__(self, trial: EpochTrial) -> None:
        self._passes = Passes(trial)
        self._logged: dict[str, float] = {}
        self.folder = self._passes.folder()
        self.checkpoint: str | None = None
        if (state := self._passes.take()) is not None:
            target = Path(self.folder) / state["name"]
            target.mkdir()
            for file, content in state["files"].items():
                (target / file).write_bytes(content)
            self.checkpoint = str(target)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Refuse arguments that would not leave a complete checkpoint after each epoch."""
        if Path(args.output_dir or "").resolve() != Path(self.folder).resolve():
            allowed = "report.folder: trials that share a folder overwrite each other's files"
            raise UsageError.refuse("output_dir", args.output_dir, allowed)
        if args.save_strategy != "epoch":
            allowed = '"epoch", so that a trial can go on after any epoch'
            strategy = getattr(args.save_strategy, "value", args.save_strategy)
            raise UsageError.refuse("save_strategy", strategy, allowed)
        if args.save_only_model:
            allowed = "False, so that a trial goes on with its optimizer"
            raise UsageError.refuse("save_only_model", True, allowed)

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        self._passes.begin()
        # ``state.epoch`` counts the epochs trained so far; None or 0 before the first step.
        self._passes.check(
            round(state.epoch or 0) + 1,
            "call trainer.train(resume_from_checkpoint=report.checkpoint)",
        )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        self._logged |= logs or {}

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Report the epoch, which the Trainer has just evaluated and saved."""
        assert args.output_dir is not None  # the Trainer has just saved there
        saved = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        files = {
            file.name: file.read_bytes() for file in saved.iterdir() if file.name not in _LEFT_OUT
        }
        logged, self._logged = self._logged, {}
        logged.pop("epoch", None)
        self._passes.report(logged, {"name": saved.name, "files": files})

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        self._passes.clean_up()
