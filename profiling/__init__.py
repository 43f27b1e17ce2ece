"""Floor 1, the ground: devices, and what work on them costs. Imports nothing of floors above."""
