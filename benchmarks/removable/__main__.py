"""Runs ``testkit.removable``."""

from testkit.removable import main

if __name__ == "__main__":
    main()
