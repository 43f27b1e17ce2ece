"""A check of the files in deploy/, run for real: ``python -m benchmarks.deploy_check``."""
