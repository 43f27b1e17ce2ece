"""Width windows: a few steps of a trial at several widths show whether more devices help.

Theory of operation. How a trial's speed changes with its devices is not known before it is
measured, and to try a width for a whole epoch may cost more than a good width ever saves. A window
costs a few steps at each width, on a copy of the trial that is thrown away. It begins with one
device. Further widths are measured by doubling, then those between, as long as they promise
something and ``limit`` seconds are not used up. So a trial that does not scale, or whose devices
need long to meet, costs little more than what the first two widths take. A curve may also jump: a
step on two devices may take twenty times what it takes on one. Where the first step at a width says
so the others are left out, and what is left of the limit is for other widths. Where nothing jumps,
each width without a gain makes one at the next width less likely. So until there is a gain, it
halves what the window may take in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: Steps at each width: the first ones, which are not counted, and the counted ones.
WARM_UP, COUNTED = 1, 2
STEPS = WARM_UP + COUNTED
#: The fewest steps on one device whose time a window may take: there, and at a faster width.
MIN_STEPS = STEPS + (STEPS + 1) // 2
#: A width is a gain if its steps take at most this part of the best narrower width's.
GAIN = 0.95
#: A width is hopeless if one step there takes so many times what a step takes at the best width.
HOPELESS = 3.0
#: The part of a window's limit for which its members may meet. If it is over they did so in vain.
MEETING = 0.3
#: After so many widths without a gain no wider one is measured, unless that costs next to nothing:
#: not more than ``CHEAP`` of the limit was used so far.
PATIENCE = 2
CHEAP = 0.1
#: Before the first gain each width that does not jump leaves this part of a window's limit, down to
#: what is cheap.
VAIN_LEAVES = 0.5


def widths_up_to(widest: int) -> tuple[int, ...]:
    """The widths of a window in the order of measuring: doubled, the widest, then between.

    >>> widths_up_to(12)
    (1, 2, 4, 8, 12, 3, 6)
    """
    doubled = [1 << power for power in range(widest.bit_length())]
    between = [3 * width // 2 for width in doubled[1:] if 3 * width // 2 < widest]
    last = [widest] if widest not in doubled else []
    return (*doubled, *last, *between)


def has_gain(found: Mapping[int, float]) -> bool:
    """Whether any width is a gain over one device. ``found`` is seconds a step, by width."""
    return bool(found) and min(found.values()) <= GAIN * found[1]


@dataclass(slots=True)
class WidthWindow:
    """Which width of ``widths`` is measured next, and what was found (seconds a step, by width)."""

    widths: tuple[int, ...]
    #: Seconds that the window may take in all; infinite until the first width is measured.
    limit: float
    #: Seconds that it has taken so far.
    spent: float = 0.0
    found: dict[int, float] = field(default_factory=dict)

    def is_hopeless(self, seconds: float) -> bool:
        """Whether a first step of ``seconds`` at the next width says enough of it.

        The first step at a width has costs of its own, so others follow while they are cheap.
        """
        if not self.found or seconds <= HOPELESS * min(self.found.values()):
            return False
        return (STEPS - 1) * seconds > CHEAP * self.limit

    def meeting_seconds(self) -> float:
        """For how long the members may take to meet from now on, before they have done so."""
        return max(0.0, min(MEETING * self.limit, self.limit - self.spent))

    def remaining(self) -> Iterator[int]:
        """The widths that are worth measuring, each when those before it are in ``found``."""
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
        """Whether both measured neighbours say that nothing is to be gained at ``width``."""
        below = max(at for at in self.found if at < width)
        above = min(at for at in self.found if at > width)
        best = min(self.found[at] for at in self.found if at <= below)
        return self.found[below] > best / GAIN or self.found[above] > GAIN * self.found[below]

    def _affords_one_more(self) -> bool:
        """Return whether a width that is twice as fast as the slowest would end in what is left.

        Hopeless ones do not count: what jumps up at one width jumps down at the next.
        """
        if not self.found:
            return True
        tried = [
            seconds
            for width, seconds in self.found.items()
            if seconds <= HOPELESS * min(self.found[at] for at in self.found if at <= width)
        ]
        in_vain = 0 if has_gain(self.found) else len(tried) - 1
        limit = max(VAIN_LEAVES**in_vain, CHEAP) * self.limit
        return self.spent + STEPS * max(tried) / 2 <= limit
