"""Features that hook into the trainer and are not extensions yet."""
