"""Notebooks of Jupyter: their cells as a program, and Optuna's studies in them."""
