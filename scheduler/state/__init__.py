"""The engine's state as plain values, the core that keeps it, and the points for extensions."""
