"""Prefixes: epochs that several trials of a study have in common, and that one of them trains."""
