"""Simulated devices: how long epochs take, how trials in a lane take turns, and memory."""
