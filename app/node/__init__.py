"""A node: its agent, the worker of each device, and the trainers that workers start."""
