"""Adapters for other frameworks' training code. Each module imports only its own framework."""
