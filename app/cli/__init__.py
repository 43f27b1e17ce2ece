"""The commands, each a few lines that call the other folders of ``app``."""
