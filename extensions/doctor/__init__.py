"""What is here of what a study needs, what is missing, and what to do about it."""
