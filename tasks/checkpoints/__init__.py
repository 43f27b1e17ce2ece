"""The state of a trial: hashed, copied, stored."""
