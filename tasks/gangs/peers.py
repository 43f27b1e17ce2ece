"""Transfer a trial's training state between trainers, from memory to memory.

Theory of operation. Every trainer serves the states that it keeps in memory. A process that knows
its identity (``wire.identity``) may ask for a state. One thread per connection answers, so a state
can be sent while the trainer trains another trial. ``lend`` guarantees that the state does not
change meanwhile. The asking side keeps its connections, because the first state through a
connection pays for setting it up, and for the shared memory between processes of one kernel
(``shared_memory``).

A request is a frame of JSON with the token, so that a stranger's connection is dropped at its first
request. Its answer is a frame; after a state's outline the tensors follow.
"""

from __future__ import annotations

import atexit
import hmac
import json
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from ...base.errors import BackendError
from ...wire.identity import Identity
from ..process import forks
from . import tensor_stream
from .shared_memory import Offer, Ring, accept

#: Function ``lend(trial, epoch)``: returns the context of the trial's live state after that epoch,
#: which does not change inside the context, or of None if the state is not in memory.
Lend = Callable[[str, int], AbstractContextManager[dict[str, Any] | None]]

#: Seconds that a server waits for a client within a request.
REQUEST_TIMEOUT = 5.0
#: Seconds without a request after which a server closes a connection.
IDLE_TIMEOUT = 600.0
#: Most bytes of a request, so that a stranger cannot make a server read more.
MAX_REQUEST_BYTES = 4096
#: Most idle connections that a client keeps.
MAX_IDLE = 16
#: Seconds to make a connection. The kernel answers, however busy the trainer is. This leaves time
#: for TCP's second try, so that one lost packet does no harm.
CONNECT_TIMEOUT = 3.0


class OutOfReach(BackendError):
    """No connection can be made: the trainer has gone, or the network between is cut."""


class PeerServer:
    """The serving side: sends this trainer's states to processes that know its token."""

    def __init__(
        self, listen: socket.socket, token: str, lend: Lend, store_port: Callable[[], int]
    ) -> None:
        """Serve at ``listen``; ``store_port()`` is the port of this trainer's rendezvous store."""
        self._listen = listen
        forks.keep_from_children(listen)
        self._token = token.encode()
        self._lend = lend
        self._store_port = store_port

    def start(self) -> None:
        """Serve, in threads of its own, until ``listen`` is shut down."""
        threading.Thread(target=self._accept, name="peer-server", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listen.accept()
                forks.keep_from_children(sock)
            except ConnectionError:
                continue  # the client has gone again
            except OSError as error:
                if not _listens(self._listen):
                    return
                print(f"no peer can connect: {error}", file=sys.stderr)  # noqa: T201
                time.sleep(1.0)  # too many files are open, which does not change at once
                continue
            threading.Thread(
                target=self._serve, args=(sock,), name="peer-connection", daemon=True
            ).start()

    def _serve(self, sock: socket.socket) -> None:
        """Answer requests on one connection until it closes, falls silent, or sends nonsense."""
        _no_delay(sock)
        offer: Offer | None = None
        timeout = REQUEST_TIMEOUT  # for a client that has not sent the token yet
        try:
            with sock:
                while (request := self._request(sock, timeout)) is not None:
                    timeout = IDLE_TIMEOUT
                    match request["op"]:
                        case "port":
                            _say(sock, {"port": self._store_port()})
                        case "ring":
                            offer = self._offer(sock)
                        case "state":
                            ring = offer.ring if offer is not None and request["ring"] else None
                            self._send_state(sock, request["trial"], request["epoch"], ring)
        except OSError:
            pass  # the client has gone, or fell silent during a request
        except Exception as error:  # a bad request, or a state that cannot be sent
            print(f"a peer's request failed: {error!r}", file=sys.stderr)  # noqa: T201

    def _request(self, sock: socket.socket, timeout: float) -> dict[str, Any] | None:
        """Return the next request, or None if its token is wrong."""
        sock.settimeout(timeout)
        request = _read(tensor_stream.receive_frame(sock, MAX_REQUEST_BYTES))
        sock.settimeout(REQUEST_TIMEOUT)
        token = str(request.get("token")).encode("utf-8", "surrogatepass")
        is_right = hmac.compare_digest(token, self._token)
        return request if is_right else None

    def _offer(self, sock: socket.socket) -> Offer | None:
        """Offer shared memory to a client on this node, and wait for the client's answer."""
        if sock.getsockname()[0] != sock.getpeername()[0]:
            _say(sock, {"path": None})
            return None
        try:
            offer = Offer()
        except OSError:  # not enough memory
            _say(sock, {"path": None})
            return None
        try:
            _say(sock, {"path": offer.path, "title": offer.title})
            tensor_stream.receive_frame(sock, MAX_REQUEST_BYTES)
        finally:
            offer.close()
        return offer

    def _send_state(self, sock: socket.socket, trial: str, epoch: int, ring: Ring | None) -> None:
        with self._lend(trial, epoch) as state:
            if state is not None:
                tensor_stream.send_frame(sock, tensor_stream.outline_of(state))
                tensor_stream.send_tensors(sock, state, ring)
                return
        tensor_stream.send_frame(sock, b"")


def fetch(
    identity: str,
    trial: str,
    epoch: int,
    *,
    into: dict[str, Any] | None,
    timeout: float = 5.0,
) -> dict[str, Any] | None:
    """Fetch the trial's state after ``epoch`` from trainer ``identity``; None if it has none.

    ``into`` is the receiver's own live state. If it has the same structure, shapes and dtypes, its
    tensors are filled in place, and the returned state holds these very tensors: fresh memory costs
    more than the copy. Otherwise the tensors are new ones on the CPU.

    Raises ``BackendError`` if the holder cannot be reached, breaks off, or is silent for
    ``timeout`` seconds. The tensors of ``into`` may then be part old, part new: the caller must
    drop the trial to which they belong.
    """
    request = {"op": "state", "trial": trial, "epoch": epoch}
    with _requested(identity, request, timeout) as (connection, outline):
        if not outline:
            return None
        try:
            state = tensor_stream.read_outline(outline, into)
            tensor_stream.receive_tensors(connection.sock, state, connection.ring)
        except OSError:
            raise
        except Exception as error:  # pickle, zip and torch raise their own classes
            raise BackendError(f"the state of {trial} cannot be loaded: {error}") from error
    return state


def store_port(identity: str, timeout: float = 5.0) -> int:
    """Return the port of the rendezvous store of the trainer ``identity``.

    Raises ``OutOfReach``, and ``BackendError`` if there is a connection but no answer.
    """
    with _requested(identity, {"op": "port"}, timeout) as (_, answer):
        port = _read(answer).get("port")
        if type(port) is not int or not 0 < port < 1 << 16:
            raise ConnectionError(f"{port!r} is not a port")
    return port


class _Connection:
    """A connection to a holder, and the memory shared with the holder, requested when needed."""

    def __init__(self, holder: Identity) -> None:
        self._token = holder.token
        try:
            self.sock = socket.create_connection((holder.address, holder.port), CONNECT_TIMEOUT)
        except OSError as error:
            raise OutOfReach(f"the trainer at {holder.where} does not answer: {error}") from error
        forks.keep_from_children(self.sock)
        _no_delay(self.sock)
        self.ring: Ring | None = None
        self._asked_for_ring = False

    def ask(self, request: dict[str, Any], timeout: float) -> bytes:
        """Send a request; return the first frame of the answer. An error closes the connection."""
        try:
            self.sock.settimeout(timeout)
            if request["op"] == "state":
                if not self._asked_for_ring:
                    self._ask_for_ring()
                request = request | {"ring": self.ring is not None}
            self._say(request)
            return tensor_stream.receive_frame(self.sock)
        except BaseException:
            self.sock.close()
            raise

    def _ask_for_ring(self) -> None:
        self._say({"op": "ring"})
        offer = _read(tensor_stream.receive_frame(self.sock, MAX_REQUEST_BYTES))
        if offer.get("path") is not None:
            self.ring = accept(str(offer["path"]), str(offer.get("title")))
            tensor_stream.send_frame(self.sock, b"")
        self._asked_for_ring = True

    def _say(self, request: dict[str, Any]) -> None:
        _say(self.sock, {"token": self._token, **request})


class _ConnectionPool:
    """Idle connections, one per identity, the least recently used one first."""

    def __init__(self) -> None:
        self._connections: OrderedDict[Identity, _Connection] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, holder: Identity) -> _Connection | None:
        with self._lock:
            return self._connections.pop(holder, None)

    def put(self, holder: Identity, connection: _Connection) -> None:
        with self._lock:
            surplus = [self._connections.pop(holder, None)]
            self._connections[holder] = connection
            if len(self._connections) > MAX_IDLE:
                surplus.append(self._connections.popitem(last=False)[1])
        for other in surplus:
            if other is not None:
                other.sock.close()

    def close(self) -> None:
        with self._lock:
            for connection in self._connections.values():
                connection.sock.close()


_connections = _ConnectionPool()
atexit.register(_connections.close)


@contextmanager
def _requested(
    identity: str, request: dict[str, Any], timeout: float
) -> Iterator[tuple[_Connection, bytes]]:
    """Ask a holder; yield the connection, and the first frame of the holder's answer.

    Only this thread uses the connection. It is kept if the context ends without an error, and
    closed otherwise. Any ``OSError`` inside becomes a ``BackendError`` that names the holder.
    """
    holder = Identity.parse(identity)
    try:
        connection, answer = _ask(holder, request, timeout)
        try:
            yield connection, answer
        except BaseException:
            connection.sock.close()
            raise
    except OSError as error:
        raise BackendError(f"the trainer at {holder.where} does not answer: {error}") from error
    _connections.put(holder, connection)


def _ask(holder: Identity, request: dict[str, Any], timeout: float) -> tuple[_Connection, bytes]:
    pooled = _connections.take(holder)
    if pooled is not None:
        with suppress(ConnectionError):  # it broke after its last use
            return pooled, pooled.ask(request, timeout)
    connection = _Connection(holder)
    return connection, connection.ask(request, timeout)


def _read(body: bytes) -> dict[str, Any]:
    """Return the message in a frame. Raises ``ConnectionError`` if no trainer would send it."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise ConnectionError("it sent an invalid message")
    return message


def _say(sock: socket.socket, message: dict[str, Any]) -> None:
    tensor_stream.send_frame(sock, json.dumps(message).encode())


def _no_delay(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _listens(sock: socket.socket) -> bool:
    return sock.fileno() >= 0 and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
