"""The same runner under simulated time, and what its experiments show."""
