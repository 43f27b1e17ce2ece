"""System tuning: which system parameters a segment runs with and tries."""

#: The name of the extension, and of its state.
NAME = "system_tuning"
