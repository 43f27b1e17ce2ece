"""Runs ``testkit.measured``."""

from testkit.measured import main

if __name__ == "__main__":
    main()
