"""The digest of an objective's draws, which ties its reports to the trial's parameters.

An objective sends the digest of its own draws; the scheduler compares that with the draws that it
has accepted for the trial.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

#: A draw: its name, its distribution (Optuna's JSON), and its value in the internal representation
#: of that distribution.
Draw = tuple[str, str, float]


def digest_of(draws: Iterable[Draw]) -> str:
    """Return the digest of ``draws``, 16 hexadecimal digits; their order does not count."""
    facts = sorted((name, text, repr(float(internal))) for name, text, internal in draws)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
