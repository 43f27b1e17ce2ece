"""Features that plug into the core: one folder each, which the core does not import."""
