"""Draw the picture of docs/lanes.md from real turns: python docs/turn_picture.py."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch
from penstock.extensions.lanes.host_state import Generators
from penstock.extensions.lanes.turns import Turns

PICTURE = Path(__file__).parent / "img" / "turns.svg"
#: Pixels, and seconds shown.
WIDTH, LEFT, ROW, TOP, SECONDS = 760, 120, 30, 44, 0.45
COLOURS = ("#2f6f9f", "#c07c2c", "#5b8c5a")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#4b5866}.m{text-anchor:middle}.e{text-anchor:end}"
    ".h{font-weight:600;fill:#16202b}"
)
#: Name of a trial, weight, length of its steps, arrival, and the time after which it leaves.
TRIALS = (
    ("long steps", 1.0, 0.035, 0.0, 9.0),
    ("short steps", 1.0, 0.002, 0.0, 9.0),
    ("a newcomer", 1.0, 0.004, 0.15, 0.06),
)
Span = tuple[int, float, float]


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(drawing(turns_of_trials()))


def turns_of_trials() -> list[Span]:
    """Return turns as (trial, begin, end): real threads, with steps that only take time."""
    turns, spans, began = Turns(Generators(torch.device("cpu"))), list[Span](), time.monotonic()

    def work(i: int) -> None:
        name, weight, step, comes, stays = TRIALS[i]
        time.sleep(comes)
        turn = turns.enter(name, i + 1, lambda: None, {name: weight})
        had = 0.0
        begin = time.monotonic() - began
        while time.monotonic() - began < SECONDS and had < stays:
            time.sleep(step)
            had += step
            if turn.is_over():
                spans.append((i, begin, time.monotonic() - began))
                turn.pass_on()
                begin = time.monotonic() - began
        spans.append((i, begin, time.monotonic() - began))
        turns.leave(turn)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(TRIALS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return spans


def drawing(spans: list[Span]) -> str:
    """Draw a row for each trial, with its turns; the arrival of the newcomer is marked."""
    across = (WIDTH - LEFT - 10) / SECONDS
    height = TOP + ROW * len(TRIALS) + 34
    comes = LEFT + TRIALS[-1][3] * across
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Turns of three trials in one lane, one of which comes later</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="m h" x="{comes:.1f}" y="18">a newcomer is dispatched</text>',
        (
            f'<line x1="{comes:.1f}" x2="{comes:.1f}" y1="24" y2="{height - 30}" stroke="#16202b" '
            'stroke-dasharray="3 3"/>'
        ),
    ]
    for i, (name, *_) in enumerate(TRIALS):
        y = TOP + i * ROW
        parts.append(f'<text class="e" x="{LEFT - 8}" y="{y + 15}">{name}</text>')
        parts += [
            f'<rect x="{LEFT + begin * across:.1f}" y="{y}" '
            f'width="{max(0.5, (min(end, SECONDS) - begin) * across):.1f}" height="{ROW - 9}" '
            f'fill="{COLOURS[i]}"/>'
            for of, begin, end in spans
            if of == i and begin < SECONDS
        ]
    parts.append(
        f'<text x="{LEFT}" y="{height - 10}">{SECONDS:g} seconds of one lane: exactly one trial '
        "runs at a time; none is left out</text></svg>\n"
    )
    return "".join(parts)


if __name__ == "__main__":
    main()
