"""The Python environment of a study's trials: a virtual environment, a root, or a command."""
