"""Lanes: several trials in the memory of one trainer take turns."""
