"""Training code as users write it, right and wrong, which trainers import."""
