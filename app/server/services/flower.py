"""Start Flower, Celery's monitor, which shows operators the queues.

Flower asks for a password, is read-only, and by default can be reached only from this machine.
"""

from __future__ import annotations

import os
import runpy
import secrets
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ....base.errors import UsageError
from ...host import locks
from ...host.settings import Settings, load

NAME = "flower"  # the name of its lock
USER = "penstock"
COLUMNS = "name,uuid,state,kwargs,result,received,started,runtime,worker"


def password_file(settings: Settings) -> Path:
    """Return the file with Flower's password.

    The file is created on first use, and only its owner can read the file.
    """
    path = settings.home / "flower.password"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(18) + "\n")
    return path


def exec_flower(settings: Settings, port: int, address: str = "127.0.0.1") -> NoReturn:
    """Replace this process by Flower, which listens at ``address``.

    Flower inherits the signal handling and the terminal. Raises UsageError if Flower already runs,
    or if its password file is empty or damaged.
    """
    if locks.is_running(settings.run, NAME):
        raise UsageError(f"Flower runs already (process {locks.pid_of(settings.run, NAME)})")
    password = password_file(settings).read_text("ascii", "replace").strip()
    if not password or not password.isascii():  # Flower would need no password
        words = "is empty or damaged: delete it, and a new one is made"
        raise UsageError(f"{password_file(settings)} {words}")
    command = [sys.executable, "-P", "-m", __name__, "--quiet", "-A", "penstock", "flower"]
    options = {
        "address": address,
        "port": port,
        "read-only": True,
        "tasks-columns": COLUMNS,
        "max-tasks": 20_000,
        "purge-offline-workers": 300,
    }
    # The password is in the environment, because every user can read a command line.
    password_variable = {"FLOWER_BASIC_AUTH": f"{USER}:{password}"}
    # Flower runs any flowerconfig.py in its working directory; our folder has none.
    os.chdir(settings.home)
    sys.stdout.flush()
    os.execve(  # noqa: S606 - no shell is wanted
        sys.executable,
        command + [f"--{name}={value}" for name, value in options.items()],
        {**os.environ, **settings.environment(), **password_variable},
    )


def main() -> NoReturn:
    """Run Flower under its lock until it is told to end. Then end without waiting for its threads.

    The threads may wait for a broker that is gone, and a normal exit would wait for the threads.
    """
    code = 1
    _ask_everywhere()
    with locks.hold(load().run, NAME):
        try:
            runpy.run_module("celery", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ask_everywhere() -> None:
    """Make every page of Flower ask for the password. By default ``/metrics`` and others do not."""
    # Imported by name, because Flower has no types.
    base: Any = import_module("flower.views").BaseHandler
    api: Any = import_module("flower.api").BaseApiHandler
    further = api.prepare

    def prepare(handler: Any) -> None:
        # As Flower's own decorator does: raises 401 if the password is missing or wrong.
        handler.get_current_user()

    def prepare_api(handler: Any) -> None:
        prepare(handler)
        further(handler)

    base.prepare, api.prepare = prepare, prepare_api


if __name__ == "__main__":
    main()
