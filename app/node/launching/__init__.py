"""The launcher process of a node: it starts trainers, forked where it can, and ends them."""
