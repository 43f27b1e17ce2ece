"""Segments in trainers: the process, what it says, and what the scheduler is told of it."""
