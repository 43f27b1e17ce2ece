"""Finds parts that a study needs and an installation lacks, and says what to do about them."""
