"""Send a training state over a connection: its outline, then its tensors' bytes in chunks.

Theory of operation. The outline is the state with a mark for every tensor, and the tensors' dtypes
and shapes. It tells the receiver everything but the bytes. These follow as one stream, small
tensors first, so that thousands of small tensors share a chunk, and large ones follow whole. Both
sides cut the stream alike, since both know the sizes.

Over a socket the stream is sent as it is, and large tensors are sent from and received into the
memory where they lie. Between processes of one kernel it goes through a ``Ring``: two chunks of
shared memory, of which the sender fills one while the receiver empties the other. Each time, a byte
on the socket says that a chunk is full, and a byte back says that it is empty again.

The caller sets the socket's timeout, which bounds each wait for the other side, not the transfer of
a whole state. Every function here may raise ``OSError`` if the other side has ended or is silent.
"""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..checkpoints.state import map_tensors, tensors_of
from ..system.tensor_bytes import bytes_of
from .shared_memory import CHUNK, Ring

if TYPE_CHECKING:
    from torch import Tensor

#: Tensors of at least this size (bytes) are sent over a socket from their own memory; smaller
#: tensors are sent together.
LARGE = 1 << 16
#: Most bytes of a frame's body: an outline of a million tensors fits.
MAX_FRAME = 256 << 20

_LENGTH = struct.Struct("!Q")


def send_frame(sock: socket.socket, body: bytes) -> None:
    _send(sock, _LENGTH.pack(len(body)) + body)


def receive_frame(sock: socket.socket, longest: int = MAX_FRAME) -> bytes:
    """Return the body of the next frame.

    Raises ``ConnectionError`` also for a body of more than ``longest`` bytes.
    """
    head = bytearray(_LENGTH.size)
    _receive(sock, head)
    (size,) = _LENGTH.unpack(head)
    if size > longest:
        raise ConnectionError(f"a frame of {size} bytes is not allowed")
    body = bytearray(size)
    _receive(sock, body)
    return bytes(body)


def outline_of(state: Any) -> bytes:
    """Return ``state`` without its tensors' bytes, for ``read_outline``."""
    # One mark for all tensors, and their kinds as JSON: torch takes 15 us to load each meta tensor.
    mark = torch.empty(0, device="meta")
    kinds = [(str(tensor.dtype)[6:], tuple(tensor.shape)) for tensor in tensors_of(state)]
    text = io.BytesIO()
    torch.save({"tree": map_tensors(state, lambda _: mark), "kinds": json.dumps(kinds)}, text)
    return text.getvalue()


def read_outline(text: bytes, into: dict[str, Any] | None) -> dict[str, Any]:
    """Return the state that ``text`` outlines. Its tensors are not filled yet.

    They are the tensors of ``into`` if that has the same structure, shapes and dtypes, otherwise
    new tensors on the CPU. Raises any error that ``torch.load`` raises.
    """
    outline = torch.load(io.BytesIO(text), weights_only=True)
    tree = outline["tree"]
    kinds = [(getattr(torch, name), tuple(shape)) for name, shape in json.loads(outline["kinds"])]
    try:
        tensors = list(_tensors_at(tree, into))
    except _OtherStructureError:
        tensors = []
    if [(tensor.dtype, tuple(tensor.shape)) for tensor in tensors] != kinds:
        tensors = [torch.empty(shape, dtype=dtype) for dtype, shape in kinds]
    remaining = iter(tensors)
    state: dict[str, Any] = map_tensors(tree, lambda _: next(remaining))
    return state


def send_tensors(sock: socket.socket, state: Any, ring: Ring | None) -> None:
    """Send the bytes of all tensors in ``state``, whatever their device and layout."""
    chunks = _chunks(bytes_of(tensor) for tensor in _small_first(state))
    if ring is None:
        scratch = _scratch()
        for chunk in chunks:
            for pieces in _runs(chunk):
                window = _window(pieces, scratch)
                if window is not pieces[0]:
                    _gather(pieces, window)
                _send(sock, window.numpy())
        return
    n_chunks = 0
    for chunk in chunks:
        if n_chunks >= 2:
            _receive(sock, bytearray(1))
        _gather(chunk, ring.window(n_chunks, _size(chunk)))
        _send(sock, b"f")
        n_chunks += 1
    _receive(sock, bytearray(min(n_chunks, 2)))


def receive_tensors(sock: socket.socket, state: Any, ring: Ring | None) -> None:
    """Fill all tensors in ``state`` with the bytes that arrive."""
    tensors = _small_first(state)
    flats = [bytes_of(tensor) for tensor in tensors]
    if ring is None:
        scratch = _scratch()
        for chunk in _chunks(flats):
            for pieces in _runs(chunk):
                window = _window(pieces, scratch)
                _receive(sock, window.numpy())
                if window is not pieces[0]:
                    _scatter(window, pieces)
    else:
        for number, chunk in enumerate(_chunks(flats)):
            _receive(sock, bytearray(1))
            _scatter(ring.window(number, _size(chunk)), chunk)
            _send(sock, b"e")
    for tensor, flat in zip(tensors, flats, strict=True):
        if not tensor.is_contiguous():
            tensor.copy_(flat.view(tensor.dtype).view(tensor.shape))


class _OtherStructureError(Exception):
    """Two states do not have their tensors in the same places."""


def _tensors_at(tree: Any, value: Any) -> Iterator[Tensor]:
    """Yield the tensors of ``value`` at the places where ``tree`` has tensors, in its order."""
    match tree, value:
        case torch.Tensor(), torch.Tensor():
            yield value
        case dict(), dict() if tree.keys() == value.keys():
            for name, item in tree.items():
                yield from _tensors_at(item, value[name])
        case ((list() | tuple()), (list() | tuple())) if len(tree) == len(value):
            for item, other in zip(tree, value, strict=True):
                yield from _tensors_at(item, other)
        case _:
            containers = (torch.Tensor, dict, list, tuple)
            if isinstance(tree, containers) or isinstance(value, containers):
                raise _OtherStructureError


def _small_first(state: Any) -> list[Tensor]:
    return sorted(tensors_of(state), key=lambda tensor: tensor.nbytes)


def _chunks(flats: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Cut the stream of all bytes into chunks, each a list of pieces of tensors."""
    chunk: list[Tensor] = []
    remaining = CHUNK
    for flat in flats:
        start, size = 0, len(flat)
        while start < size:
            size_here = min(remaining, size - start)
            chunk.append(flat[start : start + size_here])
            start += size_here
            remaining -= size_here
            if remaining == 0:
                yield chunk
                chunk, remaining = [], CHUNK
    if chunk:
        yield chunk


def _runs(chunk: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield a chunk's pieces in order, in groups to send at once.

    A large piece in host memory is a group by itself. Other pieces are grouped together.
    """
    together: list[Tensor] = []
    for piece in chunk:
        if len(piece) < LARGE or not piece.is_cpu:
            together.append(piece)
            continue
        if together:
            yield together
        yield [piece]
        together = []
    if together:
        yield together


def _window(pieces: list[Tensor], scratch: Tensor) -> Tensor:
    """Return host memory for these pieces: that of a single piece on the CPU, else scratch."""
    alone = len(pieces) == 1 and pieces[0].is_cpu
    return pieces[0] if alone else scratch[: _size(pieces)]


def _scratch() -> Tensor:
    return torch.empty(CHUNK, dtype=torch.uint8)


def _size(pieces: list[Tensor]) -> int:
    return sum(map(len, pieces))


def _by_device(window: Tensor, pieces: list[Tensor]) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield runs of pieces on one device, each with its part of ``window``."""
    start = 0
    for _, run in groupby(pieces, key=lambda piece: piece.device):
        pieces_there = list(run)
        stop = start + _size(pieces_there)
        yield window[start:stop], pieces_there
        start = stop


def _gather(pieces: list[Tensor], window: Tensor) -> None:
    for part_of_window, pieces_there in _by_device(window, pieces):
        if pieces_there[
            0
        ].is_cpu:  # NumPy's copies are memcpy; torch's take 1.2 to 1.6 times as long
            np.concatenate([piece.numpy() for piece in pieces_there], out=part_of_window.numpy())
        else:
            part_of_window.copy_(torch.cat(pieces_there))


def _scatter(window: Tensor, pieces: list[Tensor]) -> None:
    for part_of_window, pieces_there in _by_device(window, pieces):
        sizes = list(map(len, pieces_there))
        if pieces_there[0].is_cpu:
            for piece, part in zip(pieces_there, torch.split(part_of_window, sizes), strict=True):
                piece.numpy()[:] = part.numpy()
        else:
            parts = torch.split(part_of_window.to(pieces_there[0].device), sizes)
            torch._foreach_copy_(pieces_there, parts)


def _send(sock: socket.socket, data: Any) -> None:
    # Not sendall(), whose timeout applies to all bytes together.
    with memoryview(data).cast("B") as view:
        position = 0
        while position < len(view):
            position += sock.send(view[position:])


def _receive(sock: socket.socket, data: Any) -> None:
    """Fill ``data``. Raises ``ConnectionError`` if the other side has closed."""
    with memoryview(data).cast("B") as view:
        filled = 0
        while filled < len(view):
            count = sock.recv_into(view[filled:])
            if count == 0:
                raise ConnectionError("the other side has closed the connection")
            filled += count
