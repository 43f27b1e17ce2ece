"""What a report says of system parameters."""

from drive_world import spec
from penstock.app.rows import TrialRow
from penstock.app.system_view import section, tried, turned
from penstock.scheduler.events import Window, WindowsMeasured

ONE, TWO = (("threads", 1),), (("loader_workers", 2),)


def measured(*windows, failed=()):
    return WindowsMeasured(at=0.0, trial="s-1-0000", fence=1, windows=windows, failed=failed)


EVENTS = [
    measured(Window(ONE, 0.5, 0.25), Window(ONE, 0.7, 0.25)),
    measured(Window(ONE, 0.6, 0.5), failed=((TWO, "there is <nothing> to load"),)),
]


class Ledger:
    def __init__(self, events):
        self.events = events

    def of_trials(self, study, kind):
        return list(enumerate(self.events))


def trial(number, epoch, system=()):
    return TrialRow(
        f"s-1-{number:04d}", number, "completed", {}, epoch, 3, 0.1, "d", 0, 0.0, 1.0, system=system
    )


def test_windows_are_summed_up_by_configuration():
    first, second = tried(EVENTS)
    assert (first.config, first.windows, first.ratio, first.failed) == (ONE, 3, 0.6, "")
    assert (second.config, second.ratio) == (TWO, None)


def test_the_section_is_there_only_where_something_was_tried():
    assert section(Ledger([]), "s-1") == ""
    html = section(Ledger(EVENTS), "s-1")
    assert "<td>threads 1</td><td>3</td><td>1.67</td>" in html
    assert "there is &lt;nothing&gt; to load" in html
    assert "1.0 s" in html


def test_a_line_says_what_trials_ran_with():
    rows = [trial(0, 3), trial(1, 3, ONE), trial(2, 2, ONE), trial(3, 0)]
    assert (
        turned(spec(system="tune"), rows)
        == "tune by race: threads 1 in 2 trials; the default in 1 trial"
    )
    assert turned(spec(system="reuse"), []) == "reuse: no trial yet"
