"""Finds the parts of an installation that a study needs and lacks, and says what to do."""
