"""System parameters: their names and values, and the effects that turning them may have."""
