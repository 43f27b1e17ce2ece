"""Prefixes: epochs that several trials of a study have in common, trained by one of them."""
