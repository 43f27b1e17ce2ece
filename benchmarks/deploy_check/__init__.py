"""What deploy/ ships, run for real: ``python -m benchmarks.deploy_check``."""
