"""Runs ``benchmarks.optuna_examples.examples``."""

from .examples import main

if __name__ == "__main__":
    main()
