"""Questions about system configurations to try, which the history and a model answer."""
