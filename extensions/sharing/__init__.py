"""What trials read or compute of their data once: activations, and batches."""
