"""Runs ``benchmarks.gpu_campaign.steps``."""

from .steps import main

if __name__ == "__main__":
    main()
