"""Opening a checkpoint store by its fsspec URL, and saying what is wrong with one.

An S3-compatible store (``s3://bucket/prefix``) takes endpoint and credentials from where its
library looks for them (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ``~/.aws``, fsspec's own
configuration), never from the URL, so none of them travels in a message or stands in the ledger.
"""

from __future__ import annotations

from typing import Any

from ...profiling.base.errors import BackendError
from ...profiling.base.urls import hide_password

#: What to install for a kind of store; the library's own advice may name another way.
EXTRAS = {"s3": "penstock[s3]", "s3a": "penstock[s3]"}


def open_store(url: str) -> tuple[Any, str]:
    """The file system of fsspec for ``url``, and the path in it without a slash at its end.

    Raises ``BackendError`` where a library is missing, and whatever the library raises.
    """
    import fsspec.core

    try:
        files, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.partition("://")[0]
        extra = EXTRAS.get(scheme)
        how = f"pip install '{extra}'" if extra else f"install what fsspec needs for it ({error})"
        raise BackendError(
            f"the checkpoint store {hide_password(url)} needs a library: {how}"
        ) from error
    return files, str(path).rstrip("/")


def make_folder(files: Any, path: str) -> None:
    """Make a folder where there are any.

    A path that does not begin with a slash begins with a bucket: that one has none to be made, and
    a library that is asked to makes the bucket, be its name mistyped.
    """
    if path.startswith("/"):
        files.makedirs(path, exist_ok=True)


def is_local(files: Any) -> bool:
    """Whether a file system is this machine's own."""
    protocol = files.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def unusable(url: str, error: Exception) -> BackendError:
    """That the store, or a file in it, is out of reach, in words that hold no credentials."""
    if isinstance(error, BackendError):
        return error
    return BackendError(
        f"the checkpoint store {hide_password(url)} cannot be used from this node: "
        f"{hide_password(str(error))}"
    )
