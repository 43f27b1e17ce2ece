"""Notebooks of Jupyter: running their cells as a program, and Optuna's studies in them."""
