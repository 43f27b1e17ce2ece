"""Limits of a study: device-hours, energy, money and a deadline."""
