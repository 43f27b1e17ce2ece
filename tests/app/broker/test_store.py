"""A node's checkpoint store is the installation's, or the node is refused."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from penstock.app.broker import installation
from penstock.base.errors import BackendError

KEY = b"k" * 32


@pytest.mark.parametrize("url", ["file://{}/checkpoints", "memory://{}/checkpoints"])
def test_the_store_that_the_scheduler_marked_is_accepted(tmp_path, url):
    url = url.format(tmp_path)
    installation.mark(url, KEY)
    installation.mark(url, KEY)
    installation.check(url, KEY)


def test_nothing_but_the_mark_is_left_and_it_does_not_give_the_key_away(tmp_path):
    installation.mark(f"file://{tmp_path}", KEY)
    installation.check(f"file://{tmp_path}", KEY)
    (mark,) = tmp_path.iterdir()
    assert KEY.hex()[:16] not in mark.name


def test_a_folder_of_the_same_name_on_another_disk_is_refused(tmp_path):
    with pytest.raises(BackendError, match="not the installation's"):
        installation.check(f"file://{tmp_path}", KEY)
    installation.mark(f"file://{tmp_path}", b"another")
    with pytest.raises(BackendError, match="not the installation's"):
        installation.check(f"file://{tmp_path}", KEY)


def test_a_store_that_cannot_be_used_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be used"):
        installation.mark(f"file://{tmp_path}/file/checkpoints", KEY)
    with pytest.raises(BackendError, match="nosuch"):
        installation.check("nosuch://bucket", KEY)


def test_a_folder_that_is_not_there_yet_is_tried_where_it_will_be_made(tmp_path):
    url = f"file://{tmp_path}/not/yet"
    assert not installation.probe(url)
    assert list(tmp_path.iterdir()) == []
    installation.mark(url, KEY)
    assert installation.probe(url)


@pytest.mark.parametrize("folder", ["{}/file/x", "/proc/nope"])
def test_a_folder_that_cannot_be_made_is_refused_with_where_and_why(tmp_path, folder):
    (tmp_path / "file").write_text("")
    url = f"file://{folder.format(tmp_path)}"
    where = url.removeprefix("file://").rpartition("/")[0]
    with pytest.raises(
        BackendError, match=f"{url} cannot be used .* cannot be created in {where}: "
    ):
        installation.probe(url)


def test_a_store_that_hangs_is_given_up_in_time(tmp_path, monkeypatch):
    """A pipe that nobody writes to, in place of the file that a probe has written."""
    monkeypatch.setattr(installation, "STORE_TIMEOUT", 0.2)
    monkeypatch.setattr(installation, "uuid4", lambda: SimpleNamespace(hex="x", bytes=b"x"))
    os.mkfifo(tmp_path / "probe-x")
    with pytest.raises(BackendError, match=r"no answer within 0.2 s"):
        installation.probe(f"file://{tmp_path}")
