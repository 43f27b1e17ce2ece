"""Lanes: trials that are in memory together in one trainer take turns."""
