"""Trials of one structure in one process, stepped together with the bits that each has alone."""
