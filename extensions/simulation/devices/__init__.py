"""Simulated devices: what runs on them by when, who takes turns, what memory is left."""
