"""The commands, each a few lines over the other rooms."""
