"""The Python that a study's trials run in: a virtual environment, a root, or a command."""
