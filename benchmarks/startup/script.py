"""A script of an Optuna user: python _startup_script.py FOLDER [JOURNAL]. It notes when it trains.

``_startup`` runs it unchanged by ``penstock run``, and by plain Optuna in processes that share the
file JOURNAL.
"""

import sys
import time
from pathlib import Path

import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sklearn.datasets import load_digits
from torch import nn

FOLDER = Path(sys.argv[1])
TRIALS = 8


def objective(trial):
    """Three epochs of a small network."""
    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    hidden = trial.suggest_int("hidden", 16, 64)
    net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1))
    for _ in range(3):
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pixels[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            if not (noted := FOLDER / f"step-{trial.number}").exists():
                noted.write_text(str(time.time()))
    return float(loss)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    shared = JournalStorage(JournalFileBackend(sys.argv[2])) if len(sys.argv) > 2 else None
    study = optuna.create_study(study_name="start", storage=shared, load_if_exists=True)
    study.optimize(objective, n_trials=TRIALS // 2 if shared else TRIALS)
