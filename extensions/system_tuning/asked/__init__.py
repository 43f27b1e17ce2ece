"""Questions for system configurations to try, and who answers: the history, and a model."""
