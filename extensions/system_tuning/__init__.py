"""System tuning: which system parameters a segment runs with and tries."""
