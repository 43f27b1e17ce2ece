"""Sampling of our own: evolution, quasi-random points, the configurations of forked trials."""
