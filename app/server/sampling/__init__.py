"""Penstock's own sampling: evolution, quasi-random points, and PBT's changes to forked trials."""
