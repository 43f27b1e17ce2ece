"""This machine's CPU cores, GPUs and container limits, and its numeric signatures."""
