"""deploy/compose.yaml: a file that Compose reads, of services that fit each other and Penstock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from deploy.deployed import DEPLOY, ROOT, check_command, yaml_of
from machines.system import missing
from patience import PATIENCE
from penstock.app.host.settings import PREFIX, Settings
from penstock.app.node.agent import node_agent

COMPOSE = DEPLOY / "compose.yaml"
SERVICES = yaml_of(COMPOSE)["services"]
OURS = {name: s for name, s in SERVICES.items() if "build" in s}


def test_compose_itself_reads_it(tmp_path):
    compose = next(
        (words for words in (["docker", "compose"], ["docker-compose"]) if _answers(words)), None
    )
    if compose is None:
        missing("there is no Compose here: apt install --no-install-recommends docker-compose")
    copy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, copy)
    (copy / "secrets").mkdir(exist_ok=True)
    for name in yaml_of(COMPOSE)["secrets"]:
        (copy / "secrets" / name).touch()
    command = [*compose, "-f", copy / "compose.yaml", "config"]
    environment = os.environ | {"PENSTOCK_CODE": "/home/me/code"}
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("/home/me/code") >= 4  # of worker and client, here and there
    without = subprocess.run(
        command, env=environment | {"PENSTOCK_CODE": ""}, capture_output=True, check=False
    )
    assert b"the absolute path of your training code" in without.stderr


def _answers(words):
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run([*words, "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_ours_starts_a_command_with_settings_that_there_are(name):
    service = OURS[name]
    check_command(service["command"])
    names = [n.removeprefix(PREFIX) for n in service["environment"] if n.startswith(PREFIX)]
    assert names and {n.lower() for n in names} <= Settings.model_fields.keys()
    for variable, value in service["environment"].items():
        if variable.endswith("_FILE"):
            assert value.removeprefix("/run/secrets/") in service["secrets"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_watched_reached_from_this_machine_only_and_holds_no_password(name):
    service = SERVICES[name]
    assert "healthcheck" in service or service.get("restart") == "no"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    for variable, value in service.get("environment", {}).items():
        if "PASSWORD" in variable:
            assert variable.endswith("_FILE") and value.startswith("/run/secrets/")
    assert not re.search(r"://\S*:\S*@", str(service))


def test_volumes_secrets_and_files_are_there():
    file = yaml_of(COMPOSE)
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":", 1)[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in file["volumes"] or source.startswith("${PENSTOCK_CODE"), source
        assert set(service.get("secrets", ())) <= file["secrets"].keys()
    for secret in file["secrets"].values():
        ignored = ["git", "check-ignore", "-q", f"deploy/{secret['file']}"]
        assert subprocess.run(ignored, cwd=ROOT, check=False).returncode == 0


def test_a_worker_has_the_time_to_drain():
    assert (
        int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > node_agent.DRAIN_GRACE + 10
    )


def test_the_broker_keeps_what_it_was_given():
    script = SERVICES["broker"]["command"][-1]
    for line in ("appendonly yes", "maxmemory-policy noeviction", "requirepass "):
        assert line in script
