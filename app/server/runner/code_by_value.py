"""Store the code that a client sends by value (as a pickle), before its study is accepted.

The scheduler checks the size and the digest of the code and writes the bytes to the store. The
scheduler never unpickles the code.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any

from ....base.errors import UsageError
from ....scheduler.model.events import Event, StudyExtended, StudySubmitted
from ....tasks.contracts.by_value import LIMIT, is_by_value
from ...common.ports import CodeFiles


def take_in(event: Event, body: Mapping[str, Any], files: CodeFiles) -> None:
    """Store the code of the study in ``event`` if the code goes by value.

    Raises UsageError if the code is too large, does not match its digest, or is neither in ``body``
    nor in the store. Raises BackendError if the store cannot be used.
    """
    if not isinstance(event, StudySubmitted | StudyExtended):
        return
    blobs = body.get("blobs") or {}
    for code in event.study.codes:
        if not is_by_value(code.target):
            continue
        if code.digest in blobs:
            files.keep(code.digest, _content(blobs[code.digest], code.digest))
        elif not files.holds(code.digest):
            raise UsageError(
                f"the code of {event.study.name} was sent by value, and this installation's store"
                " does not have it: run the script that submits the study again. A larger n_trials"
                " extends the study"
            )


def _content(text: Any, digest: str) -> bytes:
    if not isinstance(text, str) or len(text) > 4 * (LIMIT // 3 + 1):
        raise UsageError.refuse("blobs", digest, f"at most {LIMIT >> 20} MiB of code")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError.refuse("blobs", digest, f"code in base64 ({error})") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise UsageError.refuse("blobs", digest, "the SHA-256 of the code that is sent")
    return content
