"""Values: studies, trials, events, decisions and snapshots; and the rule for the Pareto front."""
