"""The name of the extension, which its ends in the scheduler and in the trainer share."""

#: The name of the extension and of its state.
NAME = "system_tuning"
