"""Programs of Optuna's users that are no script's file: modules, notebooks, Jupyter's cells."""
