"""The examples for Celery's users: a Django project and a FastAPI app, on a broker of their own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from machines.network import answering_broker
from patience import PATIENCE, until
from servers.installation import Installation

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.integration, pytest.mark.extension("celery_apps")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def ask(url: str, **options: object) -> dict[str, object]:
    with urllib.request.urlopen(urllib.request.Request(url, **options), timeout=PATIENCE) as answer:
        return dict(json.load(answer))


def deployed(address: str) -> dict[str, object] | None:
    try:
        return ask(f"{address}/deployed") or None
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "serve", "tune"),
    [
        ("celery_django", ("manage.py", "runserver", "--noreload", "{port}"), "/tune/2"),
        ("celery_fastapi", ("-m", "uvicorn", "shop:api", "--port", "{port}"), "/studies?trials=2"),
    ],
)
def test_a_view_starts_a_study_and_a_task_gets_its_result(tmp_path, example, serve, tune):
    if example == "celery_django":
        pytest.importorskip("django", reason="Django is not installed")
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLES / example, folder)
    port = free_port()
    site = Installation(tmp_path / "home", devices="cpu:1x1")
    env = {
        **os.environ,
        **site.environment,
        "SHOP_DEPLOYED": str(tmp_path / "deployed.json"),
        "PENSTOCK_CELERY_APP": "shop",
    }
    env.pop("PENSTOCK_BROKER", None)

    def start(*command: str) -> None:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said)
        undo.callback(process.wait)
        undo.callback(process.terminate)

    with ExitStack() as undo:
        env["SHOP_BROKER"], _ = undo.enter_context(answering_broker())
        said = undo.enter_context((tmp_path / "said.log").open("wb"))
        undo.callback(
            subprocess.run, [sys.executable, "-m", "penstock", "down"], env=env, cwd=folder
        )
        start(sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "solo")
        address = f"http://127.0.0.1:{port}"
        start(sys.executable, *(word.format(port=port) for word in serve))

        def up() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        def words() -> str:
            return (tmp_path / "said.log").read_text()

        until(up, "the web server", words)
        try:
            name = ask(address + tune, method="POST", data=b"")["study"]
        except urllib.error.HTTPError:
            raise AssertionError(words()) from None
        result = until(lambda: deployed(address), "the deployed parameters", words)
    assert result["from"] == name
    assert 0 < result["value"] <= 1
    assert set(result["params"]) == {"alpha"}
