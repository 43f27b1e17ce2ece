"""Draw the pictures of docs/policies.md by the simulator: python docs/policy_pictures.py."""

from __future__ import annotations

from html import escape
from pathlib import Path

from penstock.app.show.drawings.charts import STUDIES
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.gantt import spans
from penstock.extensions.simulation.outcome import Simulation
from penstock.extensions.simulation.waits import waits
from penstock.extensions.simulation.workload import (
    StudyWork,
    TrialWork,
    Workload,
    shape_of,
    study_spec,
)
from penstock.profiling.costs.hull import hull
from penstock.profiling.costs.reference_curves import curve
from penstock.scheduler.model.study import number_of

PICTURES = Path(__file__).parent / "img"
POLICIES = ("fifo", "dynamic_fluid", "waterfill")
#: Epochs of the trials, seconds of an epoch by width, and devices.
EPOCHS = (3, 4, 3, 5, 4, 16)
CURVE = ((1, 60.0), (2, 33.0), (3, 25.0), (4, 21.0))
DEVICES = 4
RESIZE = 5.0
#: Jobs of one device: arrival of each (seconds), and number of its epochs of 10 s.
JOBS = ((0, 12), (15, 3), (25, 6), (73, 1), (84, 2))
HULL = "epochs an hour: YOLOv3 on nodes of four T4s, our fit (dots), and its hull (line)"
#: Pixels: a lane, the pictures' width, and the margin left of the lanes.
LANE, WIDTH, LEFT = 22, 760, 70
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#4b5866}.n{fill:#fff;text-anchor:middle}"
    ".h{font-weight:600;fill:#16202b}.e{text-anchor:end}.m{text-anchor:middle}"
)


def main() -> None:
    """Write all pictures."""
    level, shape = shape_of(CURVE)
    trials = tuple(TrialWork(level, shape, epochs) for epochs in EPOCHS)
    study = StudyWork(study_spec("six", len(trials), DEVICES), trials, budgets=True)
    work = Workload("six trials", (study,), RESIZE)
    simulation = run(work, simulated_devices(f"gpu:{DEVICES}"), POLICIES, known=True)
    (PICTURES / "gantt.svg").write_text(gantts(simulation))
    (PICTURES / "hull.svg").write_text(hulls())
    studies = tuple(
        StudyWork(
            study_spec(f"job {number}", 1, 1, number=number),
            (TrialWork(10.0, ((1, 1.0),), epochs),),
            float(arrives),
            budgets=True,
        )
        for number, (arrives, epochs) in enumerate(JOBS)
    )
    jobs = Workload("five jobs", studies, overhead=0.0)
    done = run(jobs, simulated_devices("gpu:1"), ("fifo", "srtf"), known=True)
    (PICTURES / "waits.svg").write_text(waiting(done))


def gantts(simulation: Simulation) -> str:
    """Draw a Gantt chart per policy, all on one axis, with the bound as a dashed line."""
    longest = max(each.makespan for each in simulation.outcomes)
    lanes = [device.name for device in simulation.devices]
    room = WIDTH - LEFT - 20

    def x(seconds: float) -> float:
        return LEFT + room * seconds / longest

    parts, top = [], 0.0
    for each in simulation.outcomes:
        words = (
            f"{each.policy}: {each.makespan:.0f} s, {each.ratio:.2f} times the bound (simulated)"
        )
        parts.append(f'<text class="h" x="{LEFT}" y="{top + 18}">{escape(words)}</text>')
        top += 26
        for place, _ in enumerate(lanes):
            middle = top + LANE * (place + 0.65)
            parts.append(f'<text class="e" x="{LEFT - 8}" y="{middle:.0f}">device {place}</text>')
        for trial, _, (device, _), begin, end in spans(each.epochs):
            y, number = top + LANE * lanes.index(device), number_of(trial)
            wide = x(end) - x(begin)
            parts.append(
                f'<rect x="{x(begin):.1f}" y="{y + 1:.0f}" width="{wide:.1f}" height="{LANE - 2}"'
                f' rx="2" fill="{STUDIES[number % len(STUDIES)]}"/>'
            )
            if wide > 12:
                at = x(begin) + wide / 2
                parts.append(f'<text class="n" x="{at:.1f}" y="{y + 15:.0f}">{number}</text>')
        below = top + LANE * len(lanes)
        parts.append(_line(x(each.bound), top - 4, x(each.bound), below + 4, dashed=True))
        top = below + 12
    return _svg(WIDTH, top, parts)


def waiting(simulation: Simulation) -> str:
    """Draw a lane per job: thick while it ran, thin in the colour of the job ahead of it."""
    longest = max(each.makespan for each in simulation.outcomes)
    room, parts, top = 420, [], 0.0
    studies = [each.spec.id for each in simulation.workload.studies]

    def bar(trial: str, begin: float, end: float, thick: int, whose: str) -> str:
        at = studies.index(trial.rpartition("-")[0])
        fill = STUDIES[studies.index(whose.rpartition("-")[0])]
        x, wide = LEFT + room * begin / longest, room * (end - begin) / longest
        return (
            f'<rect x="{x:.1f}" y="{top + LANE * (at + 0.5) - thick / 2:.1f}" width="{wide:.1f}"'
            f' height="{thick}" fill="{fill}"/>'
        )

    for outcome in simulation.outcomes:
        words = f"{outcome.policy}: mean completion {outcome.completion:.0f} s (simulated)"
        parts.append(f'<text class="h" x="{LEFT}" y="{top + 18}">{escape(words)}</text>')
        top += 26
        found = waits(simulation, outcome)
        for at, study in enumerate(simulation.workload.studies):
            middle = top + LANE * (at + 0.5) + 4
            parts.append(
                f'<text class="e" x="{LEFT - 8}" y="{middle:.0f}">{study.spec.name}</text>'
            )
            mine = [wait for wait in found if wait.trial.rpartition("-")[0] == study.spec.id]
            if mine:
                most = max(mine, key=lambda wait: wait.end - wait.begin)
                ahead = simulation.workload.by_id[most.ahead.rpartition("-")[0]].spec.name
                words = f"{most.end - most.begin:.0f} s for {ahead}: {most.why}"
                parts.append(f'<text x="{LEFT + room + 8}" y="{middle:.0f}">{escape(words)}</text>')
        parts += [bar(*wait[:1], wait.begin, wait.end, 4, wait.ahead) for wait in found]
        parts += [
            bar(row.trial, row.at - row.seconds, row.at, LANE - 4, row.trial)
            for row in outcome.epochs
        ]
        top += LANE * len(studies) + 12
    return _svg(WIDTH + 100, top, parts)


def hulls() -> str:
    """Draw speeds of a training by width, their hull, and the width for the speed at T."""
    points = [(width, 3600 / seconds) for width, seconds in curve("yolov3", "aws", 64, 12)]
    edges = hull(points)
    wanted = 0.5 * (edges.speeds[1] + edges.speeds[2])
    needed = edges.width_for(wanted)
    high, height = 1.1 * max(speed for _, speed in points), 280

    def x(width: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * width / 12.5

    def y(speed: float) -> float:
        return 20 + height * (1 - speed / high)

    line = " ".join(
        f"{x(width):.1f},{y(speed):.1f}"
        for width, speed in ((0.0, 0.0), *zip(edges.widths, edges.speeds, strict=True))
    )
    parts = [
        _line(x(0), y(0), x(12.5), y(0)),
        _line(x(0), y(0), x(0), 20),
        f'<polyline points="{line}" fill="none" stroke="{STUDIES[0]}" stroke-width="2"/>',
        *(
            f'<circle cx="{x(width):.1f}" cy="{y(speed):.1f}" r="4" fill="{STUDIES[1]}"/>'
            for width, speed in points
        ),
        _line(x(0), y(wanted), x(needed), y(wanted), dashed=True),
        _line(x(needed), y(wanted), x(needed), y(0), dashed=True),
        f'<text x="{x(0) + 8:.0f}" y="{y(wanted) - 6:.0f}">speed that T asks for</text>',
        f'<text x="{x(needed) + 6:.0f}" y="{y(0) - 8:.0f}">{needed:.1f} devices on average</text>',
        *(f'<text class="m" x="{x(w):.0f}" y="{y(0) + 16:.0f}">{w}</text>' for w in range(1, 13)),
        f'<text class="m" x="{x(6.5):.0f}" y="{y(0) + 34:.0f}">devices</text>',
        f'<text class="h" x="{x(0) + 8:.0f}" y="16">{HULL}</text>',
    ]
    return _svg(WIDTH, y(0) + 44, parts)


def _line(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> str:
    style = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#4b5866"{style}/>'
    )


def _svg(width: float, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    main()
