"""Flower, the operator's view of the queues: started on loopback, with a password, read-only."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from .settings import Settings

USER = "penstock"
COLUMNS = "name,uuid,state,kwargs,result,received,started,runtime,worker"


def password_file(settings: Settings) -> Path:
    """The file that holds Flower's password, made on first use, for its owner's eyes alone."""
    path = settings.home / "flower.password"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(18) + "\n")
    return path


def start(settings: Settings, port: int) -> subprocess.Popen[bytes]:
    """Start Flower as a child of this process on 127.0.0.1."""
    password = password_file(settings).read_text().strip()
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "penstock", "flower"]
    options = {
        "address": "127.0.0.1",
        "port": port,
        "read-only": True,
        "tasks-columns": COLUMNS,
        "max-tasks": 20_000,
        "purge-offline-workers": 300,
    }
    # The password goes by the environment: a command line can be read by every user.
    environment = {"FLOWER_BASIC_AUTH": f"{USER}:{password}"}
    return subprocess.Popen(
        command + [f"--{name}={value}" for name, value in options.items()],
        env={**os.environ, **settings.environment(), **environment},
        # Flower runs a flowerconfig.py that it finds where it starts; in our folder there is none.
        cwd=settings.home,
    )
