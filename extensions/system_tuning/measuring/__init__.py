"""Measurements of system configurations and of profiles, in a trainer."""
