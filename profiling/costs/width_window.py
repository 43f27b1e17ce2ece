"""Width windows: a few steps of a trial at several widths show whether more devices help.

Theory of operation. A trial's speed on several devices is not known before it is measured, and
trying a width for a whole epoch may cost more than a good width ever saves. A window costs a few
steps at each width, on a copy of the trial that is thrown away. It begins with one device. Then it
measures doubled widths, and then the widths between them, as long as a gain is likely and ``limit``
seconds are not used up. So a trial that does not scale, or whose gang needs long to meet, costs
little more than the first two widths. A curve may also jump: a step on two devices may take twenty
times as long as on one. If the first step at a width shows that, the other steps at that width are
left out, and the rest of the limit is for other widths. Otherwise, each width without a gain makes
a gain at the next width less likely. So until there is a gain, each such width halves the seconds
that the window may take in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: Steps at each width: the first ones, which are not counted, and the counted ones.
WARM_UP, COUNTED = 1, 2
STEPS = WARM_UP + COUNTED
#: Least limit of a window, in steps on one device: all steps there, and at a width twice as fast.
MIN_STEPS = STEPS + (STEPS + 1) // 2
#: A width is a gain if its seconds per step divided by the best narrower width's are at most this.
GAIN = 0.95
#: A width is hopeless if a step there takes more than this factor times the best width's step.
HOPELESS = 3.0
#: The part of a window's limit in which its members must meet; if they have not, the window ends.
MEETING = 0.3
#: Number of widths without a gain after which no wider one is measured, unless measuring is cheap:
#: at most ``CHEAP`` of the limit was used so far.
PATIENCE = 2
CHEAP = 0.1
#: Before the first gain, each width without a gain multiplies the window's limit by this factor,
#: down to ``CHEAP`` of the limit. Hopeless widths do not count.
VAIN_LEAVES = 0.5


def widths_up_to(widest: int) -> tuple[int, ...]:
    """Return the widths of a window in the order of measuring: doubled, the widest, then between.

    >>> widths_up_to(12)
    (1, 2, 4, 8, 12, 3, 6)
    """
    doubled = [1 << power for power in range(widest.bit_length())]
    between = [3 * width // 2 for width in doubled[1:] if 3 * width // 2 < widest]
    last = [widest] if widest not in doubled else []
    return (*doubled, *last, *between)


def has_gain(found: Mapping[int, float]) -> bool:
    """Return True if any width is a gain over one device. ``found``: seconds per step by width."""
    return bool(found) and min(found.values()) <= GAIN * found[1]


@dataclass(slots=True)
class WidthWindow:
    """A window over ``widths``, with its measurements ``found`` (seconds per step, by width)."""

    widths: tuple[int, ...]
    #: The longest time of the window (seconds); infinite until the first width is measured.
    limit: float
    #: Seconds that the window has taken so far.
    spent: float = 0.0
    found: dict[int, float] = field(default_factory=dict)

    def is_hopeless(self, seconds: float) -> bool:
        """Return True if a first step of ``seconds`` at a width is enough to give that width up.

        The first step at a width has costs of its own, so other steps follow while they are cheap.
        """
        if not self.found or seconds <= HOPELESS * min(self.found.values()):
            return False
        return (STEPS - 1) * seconds > CHEAP * self.limit

    def meeting_seconds(self) -> float:
        """Return the seconds within which the members must still meet."""
        return max(0.0, min(MEETING * self.limit, self.limit - self.spent))

    def remaining(self) -> Iterator[int]:
        """Yield the widths worth measuring. The caller adds each to ``found`` before the next.

        The iteration ends if the caller has not done so.
        """
        silent = 0
        for width in self.widths:
            narrower = [seconds for at, seconds in self.found.items() if at < width]
            wider = [at for at in self.found if at > width]
            cheap = self.spent <= CHEAP * self.limit
            if silent >= PATIENCE and not wider and not cheap:
                continue
            if wider and self._falls_short(width) and not cheap:
                continue
            if not self._affords_one_more():
                return
            yield width
            if width not in self.found:
                return
            gained = not narrower or self.found[width] <= GAIN * min(narrower)
            silent = 0 if gained else silent + 1

    def _falls_short(self, width: int) -> bool:
        """Return True if the measured neighbours show that ``width`` brings no gain."""
        below = max(at for at in self.found if at < width)
        above = min(at for at in self.found if at > width)
        best = min(self.found[at] for at in self.found if at <= below)
        return self.found[below] > best / GAIN or self.found[above] > GAIN * self.found[below]

    def _affords_one_more(self) -> bool:
        """Return True if a width twice as fast as the slowest one would end within the limit.

        Hopeless widths do not count: a curve that jumps up at one width jumps down at the next.
        """
        if not self.found:
            return True
        times = [
            seconds
            for width, seconds in self.found.items()
            if seconds <= HOPELESS * min(self.found[at] for at in self.found if at <= width)
        ]
        in_vain = 0 if has_gain(self.found) else len(times) - 1
        limit = max(VAIN_LEAVES**in_vain, CHEAP) * self.limit
        return self.spent + STEPS * max(times) / 2 <= limit
