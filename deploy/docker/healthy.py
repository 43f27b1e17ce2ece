"""Exit status 0 while the service named runs in this container: it holds its lock then."""

import sys

from penstock.app.host.locks import is_running
from penstock.app.host.settings import load

sys.exit(not is_running(load().run, sys.argv[1]))
