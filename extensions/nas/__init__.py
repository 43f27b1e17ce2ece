"""``penstock.nas``: the names that users import, and the space of a model with choices."""
