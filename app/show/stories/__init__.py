"""The story of a trial: sentences about what happened to the trial and why."""
