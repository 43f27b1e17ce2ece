"""Tools that several policies use: width plans, candidate plans, list scheduling and bounds."""
