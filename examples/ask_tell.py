"""Ask and tell: Penstock proposes and keeps the record, training is done by yourself.

    python examples/ask_tell.py

For training that no worker of Penstock's can do: on a cluster with a queue of its own, in another
language, at a bench in the laboratory. Here a line of arithmetic stands for it.
"""

import penstock
from optuna.trial import TrialState


def measure(temperature: float, catalyst: str) -> float:
    """Return the measured yield (0 to 1) at a temperature (degrees Celsius)."""
    best = {"copper": 240.0, "nickel": 310.0}[catalyst]
    if temperature > 390.0:
        raise RuntimeError("the vessel gives way")
    return max(0.0, 0.9 - ((temperature - best) / 150.0) ** 2)


def main() -> penstock.Study:
    study = penstock.create_study(direction="maximize", sampler="tpe", seed=1)
    space = {"temperature": penstock.Float(150.0, 400.0), "catalyst": ["copper", "nickel"]}
    for _ in range(30):
        trial = study.ask(space)
        try:
            study.tell(trial, measure(**trial.params))
        except RuntimeError:
            study.tell(trial, state=TrialState.FAIL)
    study.close()
    return study


if __name__ == "__main__":
    done = main()
    print(f"a yield of {done.best_value:.2f} with {done.best_params}")
