"""The graph of a model: how it is captured, mutated by recorded primitives, hashed and repaired."""
