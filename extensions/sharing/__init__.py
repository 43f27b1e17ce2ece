"""Data that several trials read or compute only once: activations, and batches."""
