"""The objective that is tuned: plain Optuna, as it was before Penstock."""

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier


def objective(trial):
    alpha = trial.suggest_float("alpha", 1e-6, 1e-1, log=True)
    x, y = load_digits(return_X_y=True)
    model = SGDClassifier(alpha=alpha, random_state=0)
    for epoch in range(4):
        model.partial_fit(x[:1300], y[:1300], classes=range(10))
        accuracy = model.score(x[1300:], y[1300:])
        trial.report(accuracy, epoch)
    return accuracy
