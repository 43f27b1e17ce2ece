"""``python -m penstock`` is ``penstock``."""

from .app.cli.main import main

if __name__ == "__main__":
    main()
