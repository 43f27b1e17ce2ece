"""One module a step: ``r<revision>_<what>.py``."""
