"""Runs ``testkit.faults.campaign``."""

from testkit.faults.campaign import main

if __name__ == "__main__":
    main()
