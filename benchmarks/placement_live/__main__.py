"""Runs ``benchmarks.placement_live.figures``."""

from .figures import main

if __name__ == "__main__":
    main()
