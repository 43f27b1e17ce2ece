"""Code of other frameworks for the tests of the adapters, small and wrong in several ways."""

from __future__ import annotations

import numpy as np
import penstock
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

from user_code.trainees import points


class Points(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(points(80), batch_size=40, shuffle=True)

    def val_dataloader(self):
        return DataLoader(points(40), batch_size=16)


class Net(pl.LightningModule):
    """With dropout and batch normalisation, under Adam with a plateau schedule."""

    def __init__(self, lr=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return {"loss": loss}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.layers(x)
        self.log("val_error", nn.functional.cross_entropy(scores, y))
        self.log_dict({"accuracy": (scores.argmax(1) == y).float().mean()})

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_error"},
        }


class Tuned(penstock.LightningTrainable):
    module = Net
    datamodule = Points


class WithItsOwnData(Net):
    train_dataloader, val_dataloader = Points.train_dataloader, Points.val_dataloader


class TunedByMethod(penstock.LightningTrainable):
    def module(self):
        return WithItsOwnData(lr=self.params["lr"])


class AsksForTheEpoch(Net):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)["loss"] * (1 + self.current_epoch)


class CountsBatches(Net):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) if batch_idx % 2 else None


class SkipsBatches(Net):
    def training_step(self, batch):
        return None


class LogsSums(Net):
    def validation_step(self, batch, batch_idx):
        self.log("seen", float(len(batch[0])), reduce_fx="sum")


class LogsMetricObjects(Net):
    def validation_step(self, batch, batch_idx):
        self.log("accuracy", nn.Identity())


class TwoOptimizers(Net):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]


class StepsItsSchedule(Net):
    def configure_optimizers(self):
        found = super().configure_optimizers()
        found["lr_scheduler"]["interval"] = "step"
        return found


class MonitorsWhatIsNotThere(Net):
    def configure_optimizers(self):
        found = super().configure_optimizers()
        found["lr_scheduler"]["monitor"] = "val_acuracy"
        return found


class Manual(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class WithoutValidation(pl.LightningModule):
    training_step = Net.training_step


class ClipsItself(Net):
    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        pass


class Unshuffled(Points):
    def train_dataloader(self):
        return DataLoader(points(80), batch_size=40)


class Weighted(Points):
    def train_dataloader(self):
        return DataLoader(points(80), batch_size=40, sampler=WeightedRandomSampler([1.0] * 80, 80))


class DropsTheRest(Points):
    def train_dataloader(self):
        return DataLoader(points(80), batch_size=32, shuffle=True, drop_last=True)


class Collates(Points):
    def val_dataloader(self):
        return DataLoader(points(40), batch_size=16, collate_fn=list)


class Several(Points):
    def val_dataloader(self):
        return [super().val_dataloader()] * 2


@penstock.epoch_function
def lightnings_own(trial):
    """Lightning's loop, with a hook that the other way refuses."""

    class Hooked(Net):
        def on_train_epoch_start(self):
            assert trial.params.get("hook", True)

    report = penstock.LightningCallback(trial)
    trainer = pl.Trainer(
        max_epochs=9,
        accelerator="cpu",
        callbacks=[report],
        default_root_dir=report.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoint = None if trial.params.get("forget") else report.checkpoint
    trainer.fit(Hooked(trial.params["lr"]), Points(), ckpt_path=checkpoint)


@penstock.epoch_function
def forgets_in_keras(trial):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    report = penstock.KerasCallback(trial)
    model.fit(np.zeros((8, 4)), np.zeros(8), epochs=9, callbacks=[report], verbose=0)


@penstock.epoch_function
def forgets_in_xgboost(trial):
    import xgboost

    data = xgboost.DMatrix(np.arange(8.0).reshape(8, 1), np.arange(8.0))
    report = penstock.XGBoostCallback(trial)
    options = {"num_boost_round": 9, "verbose_eval": False}
    xgboost.train({}, data, evals=[(data, "train")], callbacks=[report], **options)


@penstock.epoch_function
def never_saves_in_huggingface(trial):
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    report = penstock.HuggingFaceCallback(trial)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 4}
    model = BertForSequenceClassification(BertConfig(intermediate_size=8, **small))
    rows = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor(0)}] * 4
    folder = trial.params.get("folder", report.folder)
    arguments = TrainingArguments(folder, report_to=[], disable_tqdm=True)
    Trainer(model, arguments, train_dataset=rows, callbacks=[report]).train()
