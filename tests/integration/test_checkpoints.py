"""Checkpoints of whole studies: where they go, which stay, and what the user hears of them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess

import fsspec
import pytest
from penstock import SuccessiveHalving, create_study
from penstock.app.broker import installation
from penstock.base.errors import BackendError
from servers.installation import Installation, variables_of
from servers.s3_server import BUCKET, KEY_ID, SECRET, serving
from user_code import users_trainables

pytestmark = pytest.mark.integration

SPACE = {"lr": [0.01, 0.02, 0.03, 0.04]}


def durable(site, study):
    """The rows of a study in the ledger's table of durable states: (trial's number, epoch, uri)."""
    with sqlite3.connect(f"file:{site.settings.home}/ledger.db?mode=ro", uri=True) as ledger:
        query = "SELECT trial, epoch, uri FROM durable WHERE trial LIKE ? ORDER BY trial, epoch"
        rows = ledger.execute(query, (f"{study}-%",)).fetchall()
    ledger.close()
    return [(int(trial[-4:]), epoch, uri) for trial, epoch, uri in rows]


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def site(s3, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    running = Installation(home, store=f"s3://{BUCKET}/studies")
    with variables_of(running):
        yield running
    running.close()


@pytest.mark.extension("doctor")
@pytest.mark.slow
def test_a_study_on_s3_goes_on_from_there_after_a_kill_and_leaves_the_best_state(site, s3):
    study = create_study(
        metric="loss",
        sampler="grid",
        strategy=SuccessiveHalving(max_epochs=4, min_epochs=1, eta=2),
    )
    study.submit(users_trainables.Leisurely, SPACE)
    site.until(lambda: len(durable(site, study.id)) == 4, "the first rung is durable")
    assert [row[:2] for row in durable(site, study.id)] == [(n, 1) for n in range(4)]
    read = len([path for path in s3.requests("GET") if path.endswith(".pt")])
    for process in site.trainers():
        process.kill()
    assert site.wait(study.id).status == "complete"
    assert len([p for p in s3.requests("GET") if p.endswith(".pt")]) > read, "restored from there"
    best = study.best_trial.number
    site.until(
        lambda: [row[:2] for row in durable(site, study.id)] == [(best, 4)],
        "the last state of the best trial is the only one left, in the ledger",
    )
    [(_, _, uri)] = durable(site, study.id)
    site.until(lambda: s3.files() == {uri}, "and in the store")
    for secret in (SECRET, KEY_ID):
        assert secret not in site.logs()
        assert secret not in site.penstock("status", study.id, "--json")
        assert secret not in site.penstock("doctor")


def test_a_bucket_that_is_not_there_is_refused_at_once_and_not_made(s3, tmp_path):
    site = Installation(tmp_path / "home", store="s3://nobucket/x")
    said = site.penstock("up", status=3)
    assert "the checkpoint store s3://nobucket/x cannot be used from this node: " in said
    assert "bucket does not exist" in said
    assert not list(site.settings.logs.iterdir())
    with pytest.raises(BackendError, match="bucket does not exist"):
        installation.mark("s3://nobucket/x", b"key")
    assert fsspec.filesystem("s3", skip_instance_cache=True).ls("") == [BUCKET]


@pytest.fixture
def disk(tmp_path):
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    able = (
        shutil.which("mount")
        and not subprocess.run(mount, capture_output=True, check=False).returncode
    )
    if not able:
        assert not (os.environ.get("CI") and os.geteuid() == 0), "CI runs this test as root"
        pytest.skip("no file system can be mounted here: run as root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_while_the_disk_is_full_training_goes_on_the_user_is_told_and_checkpoints_come_back(
    disk, tmp_path
):
    ballast = disk / "ballast"
    full = Installation(tmp_path / "home", store=f"file://{disk}/store")
    with variables_of(full):
        try:
            ballast.write_bytes(bytes((8 << 20) - (300 << 10)))
            study = create_study(
                metric="loss",
                sampler="grid",
                strategy=SuccessiveHalving(max_epochs=2, min_epochs=1, eta=2),
            )
            study.submit(users_trainables.Leisurely, SPACE)
            words = full.until(lambda: full.reader.study(study.id).message, "it is said")
            assert "could not be written: the disk of the checkpoint store is full" in words
            ballast.unlink()
            assert full.wait(study.id).status == "complete"
            best = study.best_trial.number
            full.until(
                lambda: [row[:2] for row in durable(full, study.id)] == [(best, 2)], "durable"
            )
            assert not [path for path in disk.rglob("*") if path.suffix == ".tmp"]
        finally:
            full.close()
