"""Planning: policies are asked with snapshots of the engine, and their plans are followed."""
