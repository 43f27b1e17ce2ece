"""Weighing: the bytes that a trial of a TorchTrainable needs, before it runs and as it runs."""
