"""The scheduler process: its loop, what it asks, and the services that stay up next to it."""
