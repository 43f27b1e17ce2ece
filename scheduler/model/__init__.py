"""Values: studies, trials, events, decisions, snapshots; which trials are best (Pareto)."""
