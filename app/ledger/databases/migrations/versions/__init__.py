"""One module per migration: ``r<revision>_<what>.py``."""
