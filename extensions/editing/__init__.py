"""Edits of a study while the study runs: of its space, its epochs and its limits."""
