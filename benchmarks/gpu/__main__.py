"""Runs ``benchmarks.gpu.checks``."""

from .checks import main

if __name__ == "__main__":
    main()
