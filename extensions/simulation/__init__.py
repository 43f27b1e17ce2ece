"""Simulations: the real scheduler under simulated time, and the result of each policy."""
