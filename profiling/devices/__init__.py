"""What this machine has: CPU cores, GPUs, containers, and how it computes."""
