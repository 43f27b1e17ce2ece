"""The child process in which the scheduler runs users' policies to get plans."""
