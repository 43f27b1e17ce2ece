"""A training loop of your own, on a scikit-learn model: paused, and taken up after any epoch.

python examples/epoch_function.py
"""

import numpy as np
import penstock
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

#: Attributes that partial_fit continues from.
FITTED = ("classes_", "coef_", "intercept_", "n_features_in_", "t_")


@penstock.epoch_function
def train(trial):
    x, y = load_digits(return_X_y=True)
    x_train, x_valid, y_train, y_valid = train_test_split(x / 16, y, random_state=0)
    # Without random_state: numpy's generator is seeded for each epoch of each trial.
    model = SGDClassifier(alpha=trial.params["alpha"], loss=trial.params["loss"])
    saved = trial.load()
    if saved is not None:
        vars(model).update(saved)
    for _ in trial.epochs():
        model.partial_fit(x_train, y_train, classes=np.arange(10))
        trial.report(
            {"accuracy": model.score(x_valid, y_valid), "train": model.score(x_train, y_train)},
            checkpoint={name: getattr(model, name) for name in FITTED},
        )


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        strategy=penstock.ASHA(max_epochs=9, eta=3),
    )
    study.optimize(
        train,
        {
            "alpha": penstock.Float(1e-6, 1e-1, log=True),
            "loss": ["hinge", "log_loss", "modified_huber"],
        },
        n_trials=20,
    )
    print(f"best: {study.best_value:.4f} with {study.best_params}")
