"""Keras 3 on the torch backend.

pip install 'penstock[keras]'
python examples/keras_digits.py
"""

import os

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported

import keras
import penstock
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

EPOCHS = 9


@penstock.epoch_function
def train(trial):
    x, y = load_digits(return_X_y=True)
    x, x_valid, y, y_valid = train_test_split(x / 16, y, random_state=0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(trial.params["hidden"], activation="relu"),
            keras.layers.Dropout(trial.params["dropout"]),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(trial.params["lr"]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    report = penstock.KerasCallback(trial)
    model.fit(
        x,
        y,
        validation_data=(x_valid, y_valid),
        batch_size=64,
        epochs=EPOCHS,
        initial_epoch=report.initial_epoch,
        callbacks=[report],
        verbose=0,
    )


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="val_accuracy",
        strategy=penstock.ASHA(max_epochs=EPOCHS, eta=3),
        seed=0,
    )
    study.optimize(
        train,
        {
            "lr": penstock.Float(1e-4, 1e-1, log=True),
            "hidden": penstock.Int(16, 256, log=True),
            "dropout": penstock.Float(0.0, 0.5),
        },
        n_trials=12,
    )
    best = study.best_trial
    print(f"best: trial {best.number}, accuracy {best.value:.4f}, {best.params}")
