"""The name of the extension, shared by its ends in the scheduler and in the trainer."""

#: The name of the extension, and of its state.
NAME = "fusion"
