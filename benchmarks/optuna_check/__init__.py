"""Optuna's own tests on Penstock's storage: ``python -m benchmarks.optuna_check``."""

#: The storage that is put in place: ours, or one of Optuna's own, to see what that makes of a test.
MODE = "penstock"
CHOICES = (MODE, "inmemory", "sqlite")
