"""System parameters: which there are, and what turning them may change."""
