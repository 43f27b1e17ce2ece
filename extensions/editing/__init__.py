"""Changes of a study while it runs: its space, its epochs, its limits."""
