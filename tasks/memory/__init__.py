"""The memory that a trial of a TorchTrainable needs, estimated before it runs."""
