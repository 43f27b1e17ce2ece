"""Jupyter notebooks: running their cells as a program, and studies of Optuna's in notebooks."""
