"""Let the members of a gang find each other before a segment, and agree on its start.

Theory of operation. The members' identities come with the segment. Rank 0's trainer has one store
(torch's ``TCPStore``) for all gangs that it ever leads. The other members ask rank 0 for that
store's port. All values to agree on are written in that store under the segment's fence, which no
other attempt has. Each member waits until all have written, and checks meanwhile that the segment
is still needed. A process group is kept after the segment: making one takes 20 ms, and the next
segment mostly has the same members. The group is used again only if all of them still have it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from ...base.errors import BackendError
from ...wire.identity import Identity, listen
from ..process.failure import Lost
from . import peers
from .gang import Gang

#: Most gangs that stay connected, and most connections to leaders' stores that stay open.
GANGS_KEPT = 8
STORES_KEPT = 16
#: Seconds that a member waits for the others, which may be loading code and data.
TIMEOUT = 120.0
#: Seconds for one exchange with a store.
STORE_TIMEOUT = 10.0

#: Function that raises an error if the segment is no longer needed.
Check = Callable[[], None]


class RendezvousHandler:
    """One trainer's side: its own store, its connections to other stores, and its gangs."""

    def __init__(self, identity: str, device: torch.device) -> None:
        self.identity = identity
        parsed = Identity.parse(identity)
        self._address = parsed.address
        #: Token of the processes that may connect to this trainer.
        self.token = parsed.token
        self._device = device
        self._lock = threading.Lock()
        self._own: TCPStore | None = None
        self._stores: OrderedDict[str, TCPStore] = OrderedDict()
        self._gangs: OrderedDict[tuple[str, ...], Gang] = OrderedDict()
        self._led: Rendezvous | None = None

    def store_port(self) -> int:
        """Return the port of this trainer's store. May be called from any thread."""
        return self._own_store().port

    def begin(self, members: tuple[str, ...], fence: int, check: Check) -> Rendezvous:
        """Return the rendezvous of ``members``, in the store of rank 0, the leader.

        Raises ``Lost`` if that store cannot be reached, and any error that ``check`` raises.
        """
        store = self._store_of(members[0], check)
        rendezvous = Rendezvous(self, store, members, members.index(self.identity), fence, check)
        if rendezvous.rank == 0:
            # The values of the last rendezvous have been read by all members, or its segment has
            # ended.
            for key in self._led.keys if self._led is not None else ():
                store.delete_key(key)
            self._led = rendezvous
        return rendezvous

    def gang(self, rendezvous: Rendezvous) -> Gang:
        """Return the members' gang: their earlier one if all still have it, else a new one."""
        gang = self._gangs.pop(rendezvous.members, None)
        values = rendezvous.exchange("gang", [gang is not None, _device_id(self._device)])
        if not all(has_gang for has_gang, _ in values):
            if gang is not None:
                gang.close()
            device_ids = [device_id for _, device_id in values]
            gang = Gang(
                PrefixStore(f"{rendezvous.fence}/group", rendezvous.store),
                rendezvous.rank,
                len(rendezvous.members),
                self._device,
                self._address,
                shared=len(set(device_ids)) < len(device_ids) and "cpu" not in device_ids,
            )
        assert gang is not None
        self._gangs[rendezvous.members] = gang
        if len(self._gangs) > GANGS_KEPT:
            self._gangs.popitem(last=False)[1].close()
        return gang

    def leave(self, members: tuple[str, ...]) -> None:
        """Break up the gang: this member cannot continue, and the others must not wait for it."""
        gang = self._gangs.pop(members, None)
        if gang is not None:
            gang.close()

    def _own_store(self) -> TCPStore:
        with self._lock:
            if self._own is None:
                with listen(self._address) as listening:
                    self._own = TCPStore(
                        self._address,
                        listening.getsockname()[1],
                        is_master=True,
                        wait_for_workers=False,
                        timeout=timedelta(seconds=STORE_TIMEOUT),
                        master_listen_fd=listening.detach(),
                    )
            return self._own

    def _store_of(self, leader: str, check: Check) -> TCPStore:
        if leader == self.identity:
            return self._own_store()
        # Asked every time: a kept connection does not show that its other end has gone, and on a
        # broken network a store's calls wait for more than a minute.
        port = self._port_of(leader, check)
        if leader not in self._stores:
            try:
                self._stores[leader] = TCPStore(
                    Identity.parse(leader).address,
                    port,
                    timeout=timedelta(seconds=STORE_TIMEOUT),
                )
            except RuntimeError as error:
                raise Lost(f"the leader's store is out of reach: {error}") from error
            if len(self._stores) > STORES_KEPT:
                self._stores.popitem(last=False)
        self._stores.move_to_end(leader)
        return self._stores[leader]

    def _port_of(self, leader: str, check: Check) -> int:
        """Return the port of a leader's store.

        A leader that is just starting does not answer at once.
        """
        until = time.monotonic() + TIMEOUT
        while True:
            check()
            try:
                return peers.store_port(leader, timeout=1.0)
            except peers.OutOfReach as error:
                raise Lost(str(error)) from error
            except BackendError as error:
                if time.monotonic() > until:
                    raise Lost(str(error), ranks=[0]) from error

    def forget(self, leader: str) -> None:
        """Drop the connection to a store that does not answer."""
        self._stores.pop(leader, None)


class Rendezvous:
    """The members of one segment, which exchange values in the store of rank 0."""

    def __init__(  # noqa: PLR0917 - who, where and until when; made in one place
        self,
        handler: RendezvousHandler,
        store: TCPStore,
        members: tuple[str, ...],
        rank: int,
        fence: int | str,
        check: Check,
    ) -> None:
        self.store = store
        self.members = members
        self.rank = rank
        self.fence = fence
        #: The keys of this rendezvous's values in the store.
        self.keys: list[str] = []
        self._handler = handler
        self._check = check

    def part(self, width: int) -> Rendezvous:
        """Return the rendezvous of the first ``width`` members, which must include this one."""
        part = Rendezvous(
            self._handler,
            self.store,
            self.members[:width],
            self.rank,
            f"{self.fence}/{width}",
            self._check,
        )
        part.keys = self.keys  # deleted together
        return part

    def exchange(self, topic: str, value: Any) -> list[Any]:
        """Send ``value`` to the members; return all members' values by rank.

        Call this once per ``topic``. Raises ``Lost`` if a member does not send its value in time,
        or if the leader's store does not answer; and any error that the check raises.
        """
        keys = [f"{self.fence}/{topic}/{rank}" for rank in range(len(self.members))]
        self.keys += keys
        until = time.monotonic() + TIMEOUT
        pause = 0.0001
        try:
            self.store.set(keys[self.rank], json.dumps(value))
            while not self.store.check(keys):
                self._check()
                if time.monotonic() > until and (absent := self._absent(keys)):
                    ranks = " and ".join(map(str, absent))
                    words = f"not all members reached {topic!r} in {TIMEOUT:g} s: {ranks} did not"
                    raise Lost(words, absent)
                time.sleep(pause)
                pause = min(0.01, 2 * pause)
            received = [_decoded(text) for text in self.store.multi_get(keys)]
        except RuntimeError as error:
            self._handler.forget(self.members[0])
            raise Lost(f"the leader's store does not answer: {error}") from error
        if not all(_same_form(each, value) for each in received):
            raise Lost(f"a value for {topic!r} does not come from a member")
        return received

    def _absent(self, keys: list[str]) -> list[int]:
        """Return the ranks that have not written their key."""
        return [rank for rank, key in enumerate(keys) if not self.store.check([key])]


def _decoded(text: bytes) -> Any:
    """Return the value in a JSON text; for malformed text a mapping, which no member sends."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _same_form(value: Any, ours: Any) -> bool:
    """Return True if ``value`` has the form of ``ours``. Any process can write to a store."""
    if not isinstance(ours, list):
        return not isinstance(value, list | dict)
    return isinstance(value, list) and len(value) == len(ours)


def _device_id(device: torch.device) -> str:
    if device.type != "cuda":
        return "cpu"
    return str(torch.cuda.get_device_properties(device).uuid)
