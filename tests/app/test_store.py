"""A node's checkpoint store is the installation's, or the node is refused."""

from __future__ import annotations

import pytest
from penstock.app import store
from penstock.profiling.errors import BackendError

KEY = b"k" * 32


@pytest.mark.parametrize("url", ["file://{}/checkpoints", "memory://{}/checkpoints"])
def test_the_store_that_the_scheduler_marked_is_accepted(tmp_path, url):
    url = url.format(tmp_path)
    store.mark(url, KEY)
    store.mark(url, KEY)
    store.check(url, KEY)


def test_nothing_but_the_mark_is_left_and_it_does_not_give_the_key_away(tmp_path):
    store.mark(f"file://{tmp_path}", KEY)
    store.check(f"file://{tmp_path}", KEY)
    (mark,) = tmp_path.iterdir()
    assert KEY.hex()[:16] not in mark.name


def test_a_folder_of_the_same_name_on_another_disk_is_refused(tmp_path):
    with pytest.raises(BackendError, match="not the installation's"):
        store.check(f"file://{tmp_path}", KEY)
    store.mark(f"file://{tmp_path}", b"another")
    with pytest.raises(BackendError, match="not the installation's"):
        store.check(f"file://{tmp_path}", KEY)


def test_a_store_that_cannot_be_used_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be used"):
        store.mark(f"file://{tmp_path}/file/checkpoints", KEY)
    with pytest.raises(BackendError, match="nosuch"):
        store.check("nosuch://bucket", KEY)
