"""Planning: asks policies for plans, giving them snapshots of the engine, and follows the plans."""
