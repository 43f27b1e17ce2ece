"""Chains of keys: from where on two trials of a study have different bits.

Theory of operation. The bits of an epoch follow from the code, the data, the study's seed and
machine, what the keys of random numbers hold, and the hyperparameters in force up to that epoch. Of
one study all of it is the same but the last two. So a trial's *chain* has a link for each epoch at
which hyperparameters enter (``base.pieces``), and the key of a link covers all links
before it:

    H_0 = digest(replicate, what enters at 0)
    H_k = digest(H_before, k, what enters at k)

Where the links of two trials that govern epoch n have equal keys, all their epochs up to n have
equal bits: they have a common *prefix*. Keys compare texts of JSON, so 1, 1.0 and true differ, and
so does another order of the names, since code may go through them in their order.

A forked trial begins with another trial's state, and has no chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from ...base.pieces import entering, pieces
from ...scheduler.model.study import Scalar, StudySpec, replicate_of
from ...scheduler.model.trial import Trial

#: Trials for each one that trains all of its epochs itself, as a check: usually, and in a study
#: that takes epochs over from other studies, whose code and data are another day's.
CHECKED_ONE_IN, CHECKED_WITH_TOKEN_ONE_IN = 50, 20


class Link(NamedTuple):
    """The key of the epochs from ``after`` + 1 to ``until``; None: all from there on."""

    after: int
    until: int | None
    key: str

    def governs(self, epoch: int) -> bool:
        return self.after < epoch and (self.until is None or epoch <= self.until)


Chain = tuple[Link, ...]


def obstacle(spec: StudySpec) -> str:
    """Return the reason why no trials of the study share bits; empty if they may.

    They may if their random numbers have common keys, epochs are a function of the trial, and
    neither the machine nor a system parameter may change the results. The state of an objective or
    an epoch function is not known, so another one cannot go on from it. If trials are forked, an
    epoch counts only with a durable state of its own trial, and a trial that takes it over late may
    find none.
    """
    reasons = (
        (spec.seeding != "shared", 'seeding="trial" gives each trial random numbers of its own'),
        (
            spec.contract not in ("torch", "empty"),
            "Penstock cannot copy the state of code that has a training loop of its own",
        ),
        (
            spec.strategy.name == "pbt",
            "population based training goes on from states that must be in the store",
        ),
        (
            spec.exactness != "bitwise",
            f"exactness={spec.exactness!r} does not promise equal bits",
        ),
        (
            spec.on_signature_change != "refuse",
            "its trials may go on on machines that compute other bits",
        ),
        (
            spec.system == "tune" and not spec.system_fixed,
            'system="tune" may keep a system parameter that rounds differently',
        ),
    )
    return next((why for holds, why in reasons if holds), "")


def has_prefixes(spec: StudySpec) -> bool:
    """Return True if trials of the study may have bits in common (else see ``obstacle``)."""
    return spec.seeding == "shared" and not obstacle(spec)  # asked at every event


def chain_of(spec: StudySpec, trial: Trial) -> Chain:
    """Return the trial's chain; empty if it was forked."""
    return () if trial.origin is not None else links_of(spec, trial.number, dict(trial.params))


def links_of(spec: StudySpec, number: int, params: Mapping[str, Scalar]) -> Chain:
    """Return the chain of a trial with this number and ``params`` that was not forked."""
    return links_of_replicate(replicate_of(spec, number), params)


def links_of_replicate(replicate: int | None, params: Mapping[str, Scalar]) -> Chain:
    """Return the chain of this replicate of the configuration ``params``."""
    starts = sorted({start for _, start, _ in pieces(params)} | {0})
    links = list[Link]()
    key = digest("replicate", replicate)
    for after, until in pairwise((*starts, None)):
        assert after is not None
        key = digest(key, after, [*entering(params, after).items()])
        links.append(Link(after, until, key))
    return tuple(links)


def link_at(chain: Chain, epoch: int) -> Link | None:
    """Return the link that governs ``epoch`` (from 1); None without a chain."""
    for link in chain:
        if link.governs(epoch):
            return link
    return None


def common_epochs(one: Chain, other: Chain) -> int | None:
    """Return the number of first epochs with equal bits; None: all, however many they train.

    >>> same, a, b = Link(0, 3, "s"), Link(3, None, "a"), Link(3, None, "b")
    >>> common_epochs((same, a), (same, b)), common_epochs((same, a), (same, a))
    (3, None)
    >>> common_epochs((same, a), (Link(0, None, "s"),))
    3
    """
    if not (one and other):
        return 0
    for own_link, other_link in zip(one, other, strict=False):
        if own_link.key != other_link.key:
            return own_link.after
        if own_link.until != other_link.until:
            return min(link.until for link in (own_link, other_link) if link.until is not None)
    return None


def is_checked(spec: StudySpec, trial: Trial) -> bool:
    """Return True if the trial takes over no epochs, so that its own can be compared with others'.

    With a data token the study's name counts, too. Else studies of one seed would check the same.
    """
    name = (spec.name,) if spec.data_token else ()
    text = digest("check", spec.seed, trial.number, *name)
    return int(text[:8], 16) % checked_one_in(spec) == 0


def checked_one_in(spec: StudySpec) -> int:
    """Return the number of trials for each one that is a check (``is_checked``)."""
    return CHECKED_WITH_TOKEN_ONE_IN if spec.data_token else CHECKED_ONE_IN


def digest(*parts: object) -> str:
    """Equal for parts that have equal texts as JSON."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
