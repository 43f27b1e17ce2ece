"""Simulations: the real runner under simulated time, and the outcome of each policy."""
