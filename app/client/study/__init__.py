"""The Python API: studies are created, watched, read and changed; ask and tell."""
