"""Trains trials of one structure fused in one process, each with the bits that it has alone."""
