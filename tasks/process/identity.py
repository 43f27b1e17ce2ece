"""How a trainer process is found by others: the address it listens at, and a word that lets in.

Apart from ``neighbours`` because the worker makes a trainer's identity, and never imports torch.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from ...profiling.base.errors import UsageError

#: Of a port; what has more is none, and may be more than ``int`` reads.
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Identity:
    """``address:port:token`` as text; an IPv6 address stands in brackets."""

    address: str
    port: int
    token: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Identity:
        """The identity that ``text`` is. Raises ``UsageError``, which does not repeat the token."""
        where, _, token = text.rpartition(":")
        address, _, port = where.rpartition(":")
        address = address.removeprefix("[").removesuffix("]")
        fits = port.isdecimal() and len(port) <= _DIGITS and 0 < int(port) < 1 << 16
        if not (address and token and fits):
            raise UsageError(f"an identity is address:port:token, not {where!r} and a token")
        return cls(address, int(port), token)

    @property
    def where(self) -> str:
        """What may be shown of it: address and port."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"

    def __str__(self) -> str:
        return f"{self.where}:{self.token}"


def listen(address: str) -> socket.socket:
    """A socket for other trainers, at a free port. OSError where the address is not ours."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)
