"""What a user writes, and how code that owns its loop is run."""
