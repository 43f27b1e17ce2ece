"""How long each configuration is trained, one algorithm a file."""
