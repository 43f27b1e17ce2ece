"""Branches: trials that go on from an epoch of another one under changed values."""
