"""Trials of one structure in one process, fused with the bits that each has alone."""
