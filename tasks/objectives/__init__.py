"""Run Optuna objectives: the study and the trial that they see, and the history behind both."""
