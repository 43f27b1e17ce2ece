"""What trials of one trainer read or compute of their data once: activations, and batches."""
