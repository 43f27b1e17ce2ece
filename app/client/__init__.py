"""The script: the Python API, and what objectives change of a script's objects."""
