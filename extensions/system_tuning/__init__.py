"""Which system parameters a segment runs with and tries."""
