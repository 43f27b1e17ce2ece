"""The training loop of a TorchTrainable."""
