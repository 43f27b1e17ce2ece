"""Epoch functions for the tests: plain ones, some that are wrong as a user's can be, a real one."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from penstock import epoch_function


@epoch_function
def adds(trial):
    """Its state is the sum of all epochs and of numbers drawn; in the store every k-th epoch."""
    every, more = trial.params.get("every", 1), trial.params.get("more", 0)
    state = trial.load()
    total = state["total"] if state else 0.0
    for epoch in trial.epochs():
        total += epoch + more + random.random()
        due = epoch % every == 0
        trial.report({"accuracy": total}, checkpoint={"total": total} if due else None)


@epoch_function
def follows_steps(trial):
    """Reports what is in force, and what it saw before its loop."""
    before = trial.now("lr")
    assert trial.params == {"lr": before}
    trial.load()
    for epoch in trial.epochs():
        trial.report({"accuracy": trial.now("lr"), "before": before}, checkpoint={"epoch": epoch})


@epoch_function
def reads_early(trial):
    trial.params["lr@2"]


@epoch_function
def keeps_nothing(trial):
    total = 0.0
    for epoch in trial.epochs():
        total += epoch
        torch = float("torch" in sys.modules)
        trial.report({"accuracy": total, "torch": torch, "dropped": float("nan")})


@epoch_function
def never_loads(trial):
    total = 0.0
    for epoch in trial.epochs():
        total += epoch
        trial.report({"accuracy": total}, checkpoint={"total": total})


@epoch_function
def stops_early(trial):
    for epoch in trial.epochs():
        trial.report({"accuracy": epoch})
        if epoch == trial.params["stop"]:
            break
    print(f"after the loop, epoch {epoch}", flush=True)


@epoch_function
def tidies(trial):
    try:
        for epoch in trial.epochs():
            trial.report({"accuracy": epoch})
    except Exception:
        print("swallowed", flush=True)
    finally:
        print(f"trial {trial.number} is unwound", flush=True)


@epoch_function
def swallows(trial):
    """Nothing that is raised in its loop gets out of it."""
    for epoch in trial.epochs():
        try:
            trial.report({"accuracy": epoch}, checkpoint={"epoch": epoch})
        except BaseException as error:
            print(f"swallowed {type(error).__name__}", flush=True)


@epoch_function
def raises_in_the_middle(trial):
    for epoch in trial.epochs():
        if epoch == 2:
            raise ValueError("the dog ate the batch")
        trial.report({"accuracy": epoch}, checkpoint={"epoch": epoch})


@epoch_function
def raises_after_its_report(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})
        raise ValueError("the plot failed")


@epoch_function
def reports_another_metric(trial):
    for _ in trial.epochs():
        trial.report({"f1": 0.5})


@epoch_function
def reports_nan(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": float("nan")})


@epoch_function
def reports_text(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": "good"})


@epoch_function
def reports_a_number(trial):
    for _ in trial.epochs():
        trial.report(0.5)


@epoch_function
def reports_nothing(trial):
    for _ in trial.epochs():
        pass


@epoch_function
def reports_twice(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})
        trial.report({"accuracy": 0.6})


@epoch_function
def reports_before_the_loop(trial):
    trial.report({"accuracy": 0.5})


@epoch_function
def stores_before_the_loop(trial):
    trial.report({"size": 3}, checkpoint={"done": 1})


@epoch_function
def reports_after_the_loop(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})
        break
    trial.report({"accuracy": 0.6})


@epoch_function
def loops_twice(trial):
    for _ in trial.epochs():
        break
    for _ in trial.epochs():
        break


@epoch_function
def loads_in_the_loop(trial):
    for _ in trial.epochs():
        trial.load()


@epoch_function
def returns_at_once(trial):
    pass


@epoch_function
def exits(trial):
    sys.exit(3)


@epoch_function
def stores_itself(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5}, checkpoint={"model": {"layers": [1, adds]}})


@epoch_function
def stores_nothing_much(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5}, checkpoint={})


def _say(trial, words):
    print(f"{trial.params['kind']} trial {trial.number} {words}", flush=True)


@epoch_function
def digits(trial):
    """Linear classifiers of the digits, by scikit-learn and by torch, a fifth of a second an epoch.

    Says in the log where it begins and which epochs it trains.
    """
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    made = _Sgd if trial.params["kind"] == "sklearn" else _Torch
    model = made(trial.params["lr"], x / 16, y)
    state = trial.load()
    if state is not None:
        model.load(state)
    _say(trial, "begins" if state is None else f"goes on after epoch {state['epoch']}")
    for epoch in trial.epochs():
        _say(trial, f"trains epoch {epoch}")
        time.sleep(0.2)
        accuracy = model.train()
        trial.report({"accuracy": accuracy}, checkpoint={"epoch": epoch, **model.state()})


class _Sgd:
    FITTED = ("classes_", "coef_", "intercept_", "n_features_in_", "t_")

    def __init__(self, lr, x, y):
        from sklearn.linear_model import SGDClassifier

        self.x, self.y = x, y
        self.model = SGDClassifier(learning_rate="constant", eta0=lr)

    def train(self):
        self.model.partial_fit(self.x[:1300], self.y[:1300], classes=range(10))
        return self.model.score(self.x[1300:], self.y[1300:])

    def state(self):
        return {name: getattr(self.model, name) for name in self.FITTED}

    def load(self, state):
        vars(self.model).update({name: state[name] for name in self.FITTED})


class _Torch:
    def __init__(self, lr, x, y):
        import torch

        self.torch = torch
        self.x, self.y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
        self.model = torch.nn.Linear(64, 10)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def train(self):
        for rows in self.torch.randperm(1300).split(50):
            self.optimizer.zero_grad()
            found = self.model(self.x[rows])
            self.torch.nn.functional.cross_entropy(found, self.y[rows]).backward()
            self.optimizer.step()
        return (self.model(self.x[1300:]).argmax(1) == self.y[1300:]).float().mean()

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


@epoch_function
def leaves_a_daemon(trial):
    """Forks twice: only its variables say whose the process is that is left."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.pause()
    os.wait()
    trial.report({"accuracy": 1.0})
