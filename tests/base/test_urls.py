"""A URL with credentials is never shown whole."""

from __future__ import annotations

import pytest
from penstock.base.urls import hide_password


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@db:6379/0",
        "redis://user:s3/cret@db",
        "redis://user:s3@cret@db",
        "redis://[:s3cret@db",
        "redis://db/0?password=s3cret&x=1",
        "redis+socket:///run/x.sock?virtual_host=0&password=s3cret",
    ],
)
def test_no_form_of_password_survives_hiding(url):
    hidden = hide_password(url)
    assert "s3" not in hidden
    assert "cret" not in hidden
