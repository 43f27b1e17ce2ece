"""Tools that policies share: width plans, candidates, list scheduling, bounds."""
