"""Segments in trainers: the trainer process, its messages, and the reports to the scheduler."""
