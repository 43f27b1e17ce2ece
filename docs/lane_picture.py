"""Draw the picture of docs/lanes.md by the simulator: python docs/lane_picture.py."""

from __future__ import annotations

from html import escape
from pathlib import Path

from penstock.app.show.drawings.charts import STUDIES
from penstock.app.show.views.delays import epoch_spans
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.outcome import ExperimentResult, Simulation
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec

PICTURE = Path(__file__).parent / "img" / "lanes.svg"
#: Arrival of each job (seconds), number of epochs, and length of an epoch (seconds).
JOBS = ((0.0, 2, 60.0), (30.0, 1, 10.0), (75.0, 1, 20.0))
#: Name, policy and device of each chart.
CHARTS = (
    ("fair, one slot", "fair", "gpu:1"),
    ("fair, one lane of four seats", "fair", "gpu:1*1x4"),
    ("srtf, one slot", "srtf", "gpu:1"),
    ("srtf, one lane of four seats", "srtf", "gpu:1*1x4"),
)
#: Pixels: a job's row, the picture's width, and the margin left of the rows.
ROW, WIDTH, LEFT = 20, 760, 60
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#4b5866}.h{font-weight:600;fill:#16202b}"
    ".e{text-anchor:end}"
)


def main() -> None:
    """Write the picture."""
    studies = tuple(
        StudyWork(
            study_spec(f"job {number}", 1, 1, number=number),
            (TrialWork(seconds, ((1, 1.0),), epochs),),
            arrives,
            budgets=True,
        )
        for number, (arrives, epochs, seconds) in enumerate(JOBS)
    )
    work = Workload("three jobs", studies, overhead=0.0)
    parts, top = [], 0.0
    for name, policy, devices in CHARTS:
        done = run(work, simulated_devices(devices), [policy], known=True)
        parts += chart(name, done, top)
        top += 26 + ROW * len(JOBS) + 12
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" width="{WIDTH}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}'
        "</svg>\n"
    )


def chart(name: str, done: Simulation, top: float) -> list[str]:
    """Draw a row for each job: thick while it had turns, thin while it was in the lane without."""
    [outcome] = done.outcomes
    longest = sum(epochs * seconds for _, epochs, seconds in JOBS)
    words = f"{name}: mean start delay {outcome.delays.start:.0f} s, completion"
    words += f" {outcome.completion:.0f} s (simulated)"
    parts = [f'<text class="h" x="{LEFT}" y="{top + 18}">{escape(words)}</text>']
    for number, (arrives, _, _) in enumerate(JOBS):
        y = top + 26 + ROW * (number + 0.5)
        parts.append(f'<text class="e" x="{LEFT - 8}" y="{y + 4:.0f}">job {number}</text>')
        x = LEFT + (WIDTH - LEFT - 20) * arrives / longest
        parts.append(
            f'<line x1="{x:.1f}" y1="{y - 9}" x2="{x:.1f}" y2="{y + 9}" stroke="#16202b"/>'
        )
        for begin, end, part, thick in bars(outcome, done, number):
            left, right = (LEFT + (WIDTH - LEFT - 20) * at / longest for at in (begin, end))
            parts.append(
                f'<rect x="{left:.1f}" y="{y - thick / 2:.1f}" width="{right - left:.1f}"'
                f' height="{thick}" fill="{STUDIES[number]}" fill-opacity="{part:.2f}"/>'
            )
    return parts


def bars(
    outcome: ExperimentResult, done: Simulation, number: int
) -> list[tuple[float, float, float, int]]:
    """Return begin, end, part of the lane's time, and thickness of each bar of a job."""
    seats = {device.name: device.seats for device in done.devices}
    found = []
    for row, turns in zip(outcome.epochs, epoch_spans(outcome.epochs, seats), strict=True):
        if not row.trial.startswith(f"s{number}-"):
            continue
        found.append((row.begin, row.at, 1.0, 3))
        if outcome.policy == "srtf":  # one at a time has all turns
            found += [(begin, end, 1.0, ROW - 6) for begin, end in turns]
        else:
            found.append((row.begin, row.at, row.seconds / (row.at - row.begin), ROW - 6))
    return found


if __name__ == "__main__":
    main()
