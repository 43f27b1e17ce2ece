"""Operators on stacks of trials, with the bits that each trial has alone."""
