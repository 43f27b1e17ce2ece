"""Values: studies, trials, events, decisions, snapshots."""
