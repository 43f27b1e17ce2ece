"""A scikit-learn estimator that learns by partial_fit: a multi-layer perceptron on digits.

python examples/sklearn_partial_fit.py
"""

import penstock
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


@penstock.epoch_function
def train(trial):
    x, y = load_digits(return_X_y=True)
    x, x_valid, y, y_valid = train_test_split(x / 16, y, random_state=0)
    fit = penstock.PartialFit(
        trial,
        MLPClassifier(
            hidden_layer_sizes=(trial.params["hidden"],),
            learning_rate_init=trial.params["lr"],
            alpha=trial.params["alpha"],
        ),
    )
    for _ in fit.epochs():
        fit.estimator.partial_fit(x, y, classes=range(10))
        fit.report({"accuracy": fit.estimator.score(x_valid, y_valid)})


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        strategy=penstock.ASHA(max_epochs=9, eta=3),
        seed=0,
    )
    study.optimize(
        train,
        {
            "lr": penstock.Float(1e-4, 1e-1, log=True),
            "alpha": penstock.Float(1e-6, 1e-1, log=True),
            "hidden": penstock.Int(16, 256, log=True),
        },
        n_trials=18,
    )
    best = study.best_trial
    print(f"best: trial {best.number}, accuracy {best.value:.4f}, {best.params}")
