"""The scheduler process: its loop, the code that it asks, and the services that run next to it."""
