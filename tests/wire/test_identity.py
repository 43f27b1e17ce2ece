"""An identity is read as it was written, and its token is not shown."""

from __future__ import annotations

import pytest
from penstock.base.errors import UsageError
from penstock.wire.identity import Identity


@pytest.mark.parametrize(
    ("text", "address", "where"),
    [
        ("10.0.0.7:4100:word", "10.0.0.7", "10.0.0.7:4100"),
        ("node-3.cluster:4100:word", "node-3.cluster", "node-3.cluster:4100"),
        ("[fe80::1]:4100:word", "fe80::1", "[fe80::1]:4100"),
    ],
)
def test_an_identity_is_read_as_it_was_written(text, address, where):
    identity = Identity.parse(text)
    assert identity == Identity(address, 4100, "word")
    assert str(identity) == text
    assert identity.where == where
    assert "word" not in repr(identity)


@pytest.mark.parametrize(
    "text", ["", "host:word", "host:0:word", "host:99999:word", "host:x:word", "host:1:", ":1:word"]
)
def test_what_is_no_identity_is_refused_without_its_token(text):
    with pytest.raises(UsageError, match="address:port:token") as refused:
        Identity.parse(text)
    assert "word" not in str(refused.value)
