"""The fixtures of tests that train trials together."""

from __future__ import annotations

import pytest


@pytest.fixture
def whatever_it_takes(monkeypatch):
    """Trials are stepped together even where that is slower: it must not depend on the machine."""
    monkeypatch.setattr("penstock.extensions.fusion.known.FASTER", 1e9)
