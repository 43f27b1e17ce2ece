"""A trainer's identity for other processes: the address it listens at, and a token for access.

The module is separate from ``tasks.gangs.peers`` because the worker makes a trainer's identity and
must not import torch.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from ..base.errors import UsageError

#: The most digits of a port. Longer text is no port, and may be more than ``int`` accepts.
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Identity:
    """``address:port:token`` as text. An IPv6 address is written in brackets."""

    address: str
    port: int
    token: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Parse ``text``. Raises ``UsageError``, which does not repeat the token."""
        where, _, token = text.rpartition(":")
        address, _, port = where.rpartition(":")
        address = address.removeprefix("[").removesuffix("]")
        fits = port.isdecimal() and len(port) <= _DIGITS and 0 < int(port) < 1 << 16
        if not (address and token and fits):
            raise UsageError(f"an identity is address:port:token, not {where!r} and a token")
        return cls(address, int(port), token)

    @property
    def where(self) -> str:
        """Return the part that may be shown: address and port."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"

    def __str__(self) -> str:
        return f"{self.where}:{self.token}"


def listen(address: str) -> socket.socket:
    """Return a socket for other trainers at a free port.

    Raises ``OSError`` if the address is not local.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)
