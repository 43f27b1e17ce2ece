"""The name of the extension, and of its state."""

NAME = "lanes"
