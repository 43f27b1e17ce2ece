"""Spoilt input from outside: valid instances with something wrong in them, and garbage.

Examples are the same in every run. ``FUZZ_EXAMPLES`` is the number that each test tries.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
#: CPU seconds that one reading may take, whatever it reads: tenths are needed on a busy machine.
LIMIT = 5.0
#: Bytes that it may take: an outline of a state may have 256 MiB.
MEMORY = 1 << 30

#: JSON texts that stand where something else belongs.
ODD = (
    *("null", "true", "false", "0", "-1", "1", "2", "1.5", "-0.0", "1e-320", "1e308", "1e999"),
    *("NaN", "Infinity", "-Infinity", '"NaN"', "2147483648", "9223372036854775808"),
    *("1" * 400, "1" * 5000, f"-{'9' * 40}", '""', '"a"', '"0"', '"1"', '" "', '"\\u0000"'),
    *('"\\ud800"', '"\\u001b[2J"', '"\u0662"', '"../../x"', '"%s{0}"', json.dumps("x" * 100_000)),
    *("[]", "{}", "[[]]", "[null]", "[1]", '["a",1]', '[["a",1]]', '{"":1}', '{"a":{"b":[]}}'),
    *('{"a":1,"a":2}', "[" * 100_000, "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000),
    *(json.dumps([0] * 20_000), "1__0", "'a'"),
)  # fmt: skip
_HERE = "\x00here\x00"


class Text(str):
    """A text whose ``repr`` is short: a failing example is shown whole by ``print``."""

    def __repr__(self) -> str:
        shown = super().__repr__()
        return shown if len(shown) < 500 else f"{shown[:300]}...{shown[-150:]} ({len(self)})"


class TooLong(BaseException):
    """A reading took more than ``LIMIT``. No ``except Exception`` swallows it."""


@contextmanager
def in_time() -> Iterator[None]:
    """Raise ``TooLong`` where what is inside takes too much CPU time; the load does not matter.

    What takes more than ``MEMORY`` has a ``MemoryError``.
    """

    def over(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (room, limits[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def fuzzed(*, examples: int = EXAMPLES, **strategies: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """Run a test with examples of ``strategies``, always the same ones."""
    chosen = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: chosen(given(**strategies)(test))


def spoilt_json(*valid: Any) -> st.SearchStrategy[str]:
    """JSON texts near those of the ``valid`` documents, which may be given as text."""
    documents = [json.loads(each) if isinstance(each, str) else each for each in valid]
    texts = [json.dumps(each) for each in documents]
    structural = st.sampled_from(documents).flatmap(_edited)
    other = spoilt_text(*texts) | st.sampled_from(ODD)
    return st.one_of(structural, structural, structural, other).map(Text)


def spoilt_object(*valid: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of JSON near the ``valid`` ones: as they come out of a message that is one."""
    return spoilt_json(*valid).map(_as_object).filter(lambda found: found is not None)


def spoilt_text(*valid: str) -> st.SearchStrategy[str]:
    """Texts near the ``valid`` ones, and any others."""
    near = spoilt_bytes(*(each.encode() for each in valid)).map(lambda each: each.decode("latin-1"))
    return (near | st.text()).map(Text)


def spoilt_bytes(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Bytes near the ``valid`` ones, and any others."""
    near = st.sampled_from(valid).flatmap(_scratched)
    return st.one_of(near, near, near, st.binary(max_size=200))


def _as_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@st.composite
def _edited(draw: Callable[..., Any], document: Any) -> str:
    """The text of ``document`` with one or two of its nodes replaced, dropped, doubled or moved."""
    document = json.loads(json.dumps(document))
    raw = []
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(document))
        if not places:
            break
        box, name = draw(st.sampled_from(places))
        what = draw(st.sampled_from(("odd", "odd", "odd", "odd", "gone", "more", "moved")))
        if what == "odd":
            box[name] = f"{_HERE}{len(raw)}"
            raw.append(draw(st.sampled_from(ODD)))
        elif what == "gone":
            del box[name]
        elif what == "moved":
            other, there = draw(st.sampled_from(places))
            box[name] = json.loads(json.dumps(other[there]))
        elif isinstance(box, dict):
            box[draw(st.sampled_from(("", "x", "\ud800", "id", f"{name}s")))] = box[name]
        else:
            box.append(box[name])
    text = json.dumps(document)
    for number, odd in enumerate(raw):
        text = text.replace(json.dumps(f"{_HERE}{number}"), odd)
    return text


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every node but the root, as (what it is in, its name or number there)."""
    names = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for name in names:
        yield node, name
        yield from _places(node[name])


@st.composite
def _scratched(draw: Callable[..., Any], content: bytes) -> bytes:
    """``content`` with some bytes changed, cut off, put in, left out or repeated."""
    spoilt = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(spoilt) - 1)))
        size = draw(st.integers(1, 40))
        match draw(st.sampled_from(("flip", "flip", "cut", "in", "out", "again"))):
            case "flip":
                spoilt[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del spoilt[at:]
            case "in":
                spoilt[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "out":
                del spoilt[at : at + size]
            case "again":
                spoilt[at:at] = spoilt[at : at + size] * draw(st.sampled_from((1, 2, 1000)))
    return bytes(spoilt)
