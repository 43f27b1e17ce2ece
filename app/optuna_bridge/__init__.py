"""Everything that speaks Optuna's language: samplers, spaces, frozen trials, its storage."""
