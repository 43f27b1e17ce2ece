"""System tuning: chooses the system parameters of trials, and measures alternatives."""
