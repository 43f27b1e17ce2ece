"""Strategies, which decide how long each configuration is trained, one algorithm a file."""
