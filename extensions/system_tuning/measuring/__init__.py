"""Measuring system configurations and profiles in a trainer."""
