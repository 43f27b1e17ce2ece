"""Chains of keys, which show the epoch after which two trials of a study have different bits.

Theory of operation. The bits of an epoch follow from the code, the data, the study's seed and
machine, the keys of random numbers, and the hyperparameters used up to that epoch. Within a study
all of these except the last two are the same. So a trial's *chain* has a link for each epoch from
which new hyperparameters apply (``base.pieces``), and the key of a link covers all links before it:

    H_0 = digest(replicate, hyperparameters that apply from the start)
    H_k = digest(H_before, k, hyperparameters that apply from after epoch k)

If the links of two trials for epoch n have equal keys, all their epochs up to n have equal bits:
the trials have a common *prefix*. Keys are made of JSON texts, so 1, 1.0 and true differ. So do
different orders of the names, since code may iterate over them.

A forked trial starts from another trial's state, and has no chain.
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

#: One in this number of trials trains all of its epochs itself, as a check. The second number is
#: for studies that take over epochs from other studies, whose code and data may have been others.
CHECKED_ONE_IN, CHECKED_WITH_TOKEN_ONE_IN = 50, 20


class Link(NamedTuple):
    """The key of the epochs after ``after`` up to ``until`` (None: without an end)."""

    after: int
    until: int | None
    key: str

    def governs(self, epoch: int) -> bool:
        return self.after < epoch and (self.until is None or epoch <= self.until)


Chain = tuple[Link, ...]


def obstacle(spec: StudySpec) -> str:
    """Return the reason why trials of the study cannot share bits; empty if they can.

    They can if their random numbers have common keys, if Penstock runs their steps, if no trial is
    forked, and if neither the machine nor a system parameter may change the results. The state of
    an objective or of an epoch function is not known, so another trial cannot continue from it. In
    studies with forks, an epoch counts only with a durable state of its own trial, and a trial that
    takes the epoch over late may find no such state.
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
    """Return True if trials of the study may have bits in common (see ``obstacle``)."""
    return spec.seeding == "shared" and not obstacle(spec)  # asked at every event


def chain_of(spec: StudySpec, trial: Trial) -> Chain:
    """Return the trial's chain; empty if the trial was forked."""
    return () if trial.origin is not None else links_of(spec, trial.number, dict(trial.params))


def links_of(spec: StudySpec, number: int, params: Mapping[str, Scalar]) -> Chain:
    """Return the chain of a trial with this number and ``params``, if it was not forked."""
    return links_of_replicate(replicate_of(spec, number), params)


def links_of_replicate(replicate: int | None, params: Mapping[str, Scalar]) -> Chain:
    """Return the chain of replicate ``replicate`` of the configuration ``params``."""
    starts = sorted({start for _, start, _ in pieces(params)} | {0})
    links = list[Link]()
    key = digest("replicate", replicate)
    for after, until in pairwise((*starts, None)):
        assert after is not None
        key = digest(key, after, [*entering(params, after).items()])
        links.append(Link(after, until, key))
    return tuple(links)


def link_at(chain: Chain, epoch: int) -> Link | None:
    """Return the link for ``epoch`` (from 1); None if the chain is empty."""
    for link in chain:
        if link.governs(epoch):
            return link
    return None


def common_epochs(one: Chain, other: Chain) -> int | None:
    """Return the number of first epochs with equal bits, or None if all are equal.

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
    """Return True if the trial takes over no epochs, so that its own epochs check other trials'.

    If there is a data token, the choice of such trials depends on the study's name, too. Otherwise
    studies with the same seed would check the same trials.
    """
    name = (spec.name,) if spec.data_token else ()
    text = digest("check", spec.seed, trial.number, *name)
    return int(text[:8], 16) % checked_one_in(spec) == 0


def checked_one_in(spec: StudySpec) -> int:
    """Return n if one in n trials is a check (``is_checked``)."""
    return CHECKED_WITH_TOKEN_ONE_IN if spec.data_token else CHECKED_ONE_IN


def digest(*parts: object) -> str:
    """Return a digest of the JSON text of ``parts``."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
