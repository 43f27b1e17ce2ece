"""An Optuna objective as it is, on a scikit-learn model: with Optuna alone, or with Penstock.

python examples/optuna_objective.py            # Penstock: all cores, pause and promotion
python examples/optuna_objective.py --optuna   # plain Optuna, one trial after another
"""

import sys

import numpy as np
import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

EPOCHS = 9


def objective(trial):
    alpha = trial.suggest_float("alpha", 1e-6, 1e-1, log=True)
    loss = trial.suggest_categorical("loss", ["hinge", "log_loss", "modified_huber"])
    averaged = trial.suggest_categorical("average", [True, False])

    x, y = load_digits(return_X_y=True)
    x_train, x_valid, y_train, y_valid = train_test_split(x / 16, y, random_state=0)
    model = SGDClassifier(alpha=alpha, loss=loss, average=averaged, random_state=0)
    for epoch in range(EPOCHS):
        model.partial_fit(x_train, y_train, classes=np.arange(10))
        accuracy = model.score(x_valid, y_valid)
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


if __name__ == "__main__":
    if "--optuna" in sys.argv:
        study = optuna.create_study(direction="maximize")
        study.optimize(objective, n_trials=20)
    else:
        import penstock

        study = penstock.create_study(
            direction="maximize",
            strategy=penstock.ASHA(max_epochs=EPOCHS, eta=3),
            seed=0,
        )
        study.optimize(objective, n_trials=20)
    print(f"best: {study.best_value:.4f} with {study.best_params}")
