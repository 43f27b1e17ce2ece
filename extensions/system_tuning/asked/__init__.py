"""Questions for system configurations to try, answered by the history and by a model."""
