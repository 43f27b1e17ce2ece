"""Finds what a study needs and an installation lacks, and says what to do about each problem."""
