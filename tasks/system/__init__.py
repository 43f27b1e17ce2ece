"""Turning system parameters, and measuring what they do."""
