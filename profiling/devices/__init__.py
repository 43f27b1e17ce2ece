"""This machine's CPU cores, GPUs and container limits, and the way it computes."""
