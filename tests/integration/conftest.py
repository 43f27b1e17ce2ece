"""One running installation for all tests here; what they kill, it brings back by itself."""

from __future__ import annotations

import pytest
from servers.installation import Installation, variables_of


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    site = Installation(tmp_path_factory.mktemp("home"))
    yield site
    site.close()


@pytest.fixture
def site(running):
    """The installation, and the environment of its user; no study is left on its devices."""
    with variables_of(running):
        yield running
    running.cancel_all()
