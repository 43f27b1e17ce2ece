"""The engine's state as plain values, and its bookkeeping."""
