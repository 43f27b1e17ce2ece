"""Runs ``benchmarks.strangers.comparison``."""

from .comparison import main

if __name__ == "__main__":
    main()
