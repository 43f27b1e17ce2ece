"""The commands, each a few lines over the rooms below."""
