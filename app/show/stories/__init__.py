"""The story of a trial: what happened to it and why, in sentences."""
