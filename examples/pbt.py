"""Population based training: learning rate and dropout of one network change while it trains.

    python examples/pbt.py

Eight networks are trained side by side. After every second epoch the worst take over the weights of
the best, and go on with other hyperparameters.
"""

import penstock
from digits import DigitsNet

if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        sampler="random",
        strategy=penstock.PBT(max_epochs=12, interval=2, explore=["lr", "dropout", "batch_size"]),
    )
    study.optimize(
        DigitsNet,
        space={
            "lr": penstock.Float(1e-4, 1e-1, log=True),
            "dropout": penstock.Float(0.0, 0.5),
            "batch_size": [16, 32, 64, 128],
            "hidden": [64],
        },
        n_trials=8,
    )
    trials, trial, last = study.trials, study.best_trial, 12
    print(f"trial {trial.number}: accuracy {trial.value:.4f}. Its hyperparameters, backwards:")
    while last > 0:
        origin = trial.user_attrs.get("origin", {"trial": trial.number, "epoch": 0})
        print(f"  epochs {origin['epoch'] + 1} to {last}, trial {trial.number}: {trial.params}")
        trial, last = trials[origin["trial"]], origin["epoch"]
