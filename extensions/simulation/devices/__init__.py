"""Simulated devices: the times of their epochs, turns in their lanes, and their memory."""
