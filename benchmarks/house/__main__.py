"""Runs ``benchmarks.house.figures``."""

from .figures import main

if __name__ == "__main__":
    main()
