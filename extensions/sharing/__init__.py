"""Data that several trials share, so that it is computed or read once: activations and batches."""
