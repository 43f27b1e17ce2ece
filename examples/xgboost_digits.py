"""XGBoost: five boosting rounds are an epoch.

pip install 'penstock[xgboost]'
python examples/xgboost_digits.py
"""

import penstock
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

ROUNDS, EPOCHS = 5, 9


@penstock.epoch_function
def train(trial):
    x, y = load_digits(return_X_y=True)
    x, x_valid, y, y_valid = train_test_split(x, y, random_state=0)
    report = penstock.XGBoostCallback(trial, rounds=ROUNDS)
    xgboost.train(
        {
            "objective": "multi:softmax",
            "num_class": 10,
            "eval_metric": ["merror", "mlogloss"],
            **trial.params,
        },
        xgboost.DMatrix(x, y),
        num_boost_round=ROUNDS * EPOCHS,
        evals=[(xgboost.DMatrix(x_valid, y_valid), "validation")],
        verbose_eval=False,
        xgb_model=report.booster,
        callbacks=[report],
    )


if __name__ == "__main__":
    study = penstock.create_study(
        metric="validation-mlogloss",
        strategy=penstock.ASHA(max_epochs=EPOCHS, eta=3),
        seed=0,
    )
    study.optimize(
        train,
        {
            "eta": penstock.Float(0.03, 1.0, log=True),
            "max_depth": penstock.Int(2, 8),
            "min_child_weight": penstock.Float(0.1, 10.0, log=True),
        },
        n_trials=18,
    )
    best = study.best_trial
    error = best.user_attrs["metrics"]["validation-merror"]
    print(f"best: trial {best.number}, loss {best.value:.4f}, error {error:.4f}, {best.params}")
