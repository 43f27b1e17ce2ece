"""The trainer process, its messages, and a worker's reports to the scheduler on its segments."""
