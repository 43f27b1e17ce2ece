"""The loop around the engine: what comes in, what goes out, and the hosts of code that it asks."""
