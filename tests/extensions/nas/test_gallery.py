"""The architectures of a study in its report: boxes of what trainers said, and their pictures."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.writes import Batch
from penstock.extensions.nas import gallery as architectures
from penstock.extensions.nas.events import Derived
from penstock.extensions.nas.pictures.outline import MOST_LINES, boxes_of, primitive_words
from penstock.extensions.nas.pictures.picture import picture

HOSTILE = '</svg><script>alert("x")</script>&{{plotly}}'


def part(text, *reads, choice="", by=""):
    return {"text": text, "reads": list(reads), "choice": choice, "by": by}


def outline(*parts):
    return json.dumps(parts)


#: A residual block that a choice put there, with a layer that a mutator made.
BLOCK = outline(
    part("input"),
    part("Conv2d 1→8, 3x3", 0),
    part("Conv2d 8→8, 3x3", 1, choice="op0 = mobile"),
    part("BatchNorm2d 8", 2, choice="op0 = mobile"),
    part("ReLU", 3, choice="op0 = mobile"),
    part("add", 1, 4, choice="op0 = mobile"),
    part("GELU", 5, by="activation"),
    part("Linear 8→10", 6),
    part("output", 7),
)


def test_parts_in_a_row_are_one_box_as_far_as_one_choice_or_mutator_made_them():
    boxes = boxes_of(BLOCK)
    assert [(box.lines, box.reads, box.choice, box.by) for box in boxes] == [
        (["input"], [], "", ""),
        (["Conv2d 1→8, 3x3"], [0], "", ""),
        (["Conv2d 8→8, 3x3", "BatchNorm2d 8", "ReLU"], [1], "op0 = mobile", ""),
        (["add"], [1, 2], "op0 = mobile", ""),
        (["GELU"], [3], "", "activation"),
        (["Linear 8→10"], [4], "", ""),
        (["output"], [5], "", ""),
    ]
    long = boxes_of(outline(part("a"), *(part("b", index) for index in range(3 * MOST_LINES))))
    assert max(len(box.lines) for box in long) == MOST_LINES
    assert sum(len(box.lines) for box in long) == 3 * MOST_LINES + 1


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{", "7", "[7]", "null", '[{"text": "a"}]', "[" * 100_000),
        *(outline(part("a", 0)), outline(part("a", True)), outline(part("a", -1))),
        outline(part("a"), part("b", 2), part("c")),
        '[{"text": "a", "reads": "0", "choice": "", "by": ""}]',
    ],
)
def test_what_is_no_outline_has_no_boxes(text):
    assert boxes_of(text) == []


def drawn(text, colours=None):
    svg, width = picture(boxes_of(text), colours or {}, "a net")
    return ET.fromstring(svg), width


def rectangles(svg):
    return [
        tuple(float(each.get(name)) for name in ("x", "y", "width", "height"))
        for each in svg.iter("rect")
    ]


def points(path):
    """A path's points, with what leads to each, from absolute M, V and C commands."""
    x = y = 0.0
    for command, numbers in re.findall(r"([MVC])([^MVC]*)", path.get("d")):
        values = [float(each) for each in numbers.split()]
        if command == "V":
            y = values[0]
        else:
            x, y = values[-2:]
        yield command, x, y


def random_net(seed):
    random = Random(seed)
    parts = [part("input")]
    for index in range(1, random.randint(5, 60)):
        reads = random.sample(range(index), min(index, random.choice([1, 1, 1, 2, 3])))
        words = "layer " * random.randint(1, 6)
        parts.append(part(words, *reads, choice=random.choice(["", "a = 1", "b = 2"])))
    return outline(*parts)


@pytest.mark.parametrize("seed", range(30))
def test_no_box_is_on_another_one_and_no_line_goes_down_through_a_box(seed):
    text = random_net(seed)
    svg, _ = drawn(text)
    boxes, places = boxes_of(text), rectangles(svg)
    assert len(places) == len(boxes)
    for (x, y, width, height), (left, top, across, down) in combinations(places, 2):
        assert x + width <= left or left + across <= x or y + height <= top or top + down <= y
    paths = list(svg.iter("path"))
    assert len(paths) == sum(len(box.reads) for box in boxes)
    low, high = (float(each) for each in svg.get("viewBox").split()[::2])
    for path in paths:
        before = None
        for command, x, y in points(path):
            assert low <= x <= low + high
            if command == "V":
                for left, top, across, down in places:
                    inside = left < x < left + across
                    assert not (inside and before + 0.5 < top + down / 2 < y - 0.5)
            before = y


def test_a_box_is_below_what_it_reads():
    svg, _ = drawn(BLOCK)
    places, boxes = rectangles(svg), boxes_of(BLOCK)
    for (_, y, _, _), box in zip(places, boxes, strict=True):
        assert all(places[read][1] + places[read][3] < y for read in box.reads)


def test_a_choice_has_its_colour_and_what_a_mutator_made_is_dashed():
    svg, _ = drawn(BLOCK, {"op0": "#123456"})
    fills = [each.get("fill") for each in svg.iter("rect")]
    assert [fill == "#123456" for fill in fills] == [False, False, True, True, False, False, False]
    dashes = [each.get("stroke-dasharray") is not None for each in svg.iter("rect")]
    assert dashes == [False, False, False, False, True, False, False]
    texts = [each.text for each in svg.iter("text")]
    assert {"op0 = mobile", "by activation"} <= {*texts}


def test_primitives_have_words():
    layer = {"make": "torch.nn:Conv2d", "args": [8, 16, 1], "kwargs": {"bias": False}}
    words = {
        "act: replace act(Conv2d(8, 16, 1, bias=False))": ("replace", "act", {"layer": layer}),
        "act: update second(out_channels=24)": (
            *("update", "second"), {"arguments": {"out_channels": 24}},
        ),
        "act: connect add(other='x', how='cat')": ("connect", "add", {"other": "x", "how": "cat"}),
    }  # fmt: skip
    for expected, (operation, at, values) in words.items():
        done = {"operation": operation, "at": at, "by": "act", "values": values}
        assert primitive_words(done) == expected


def derived(trial, text=BLOCK, digest="d", log="[]"):
    return Derived(at=1.0, trial=trial, fence=1, base="b", log=log, digest=digest, outline=text)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    reader = make_study(tmp_path_factory.mktemp("home"), study_spec(n_trials=9))
    row = reader.study("digits-1a2b")
    return row, reader.trials(row.id)


def numbers(html):
    return [int(each) for each in re.findall(r"<figcaption><b>trial (\d+)</b>", html)]


def test_the_gallery_has_the_best_of_each_architecture_and_no_other(study):
    row, trials = study
    done = sorted(trials, key=lambda trial: (trial.state == "completed", trial.value), reverse=True)
    events = [derived(trial.id, digest=str(trial.number % 4)) for trial in trials]
    expected = {}
    for trial in done:
        expected.setdefault(trial.number % 4, trial.number)
    html = architectures.section(row, trials, events)
    assert numbers(html)[0] == done[0].number
    assert set(numbers(html)) <= {trial.number for trial in trials}
    assert len({number % 4 for number in numbers(html)}) == len(numbers(html)) == 4
    assert "The best 4 of 4 different ones, of 9 trials" in html
    several = architectures.section(row, trials, [derived(t.id, digest=t.id) for t in trials])
    assert len(numbers(several)) == architectures.SHOWN


def test_a_study_without_choices_or_whose_models_cannot_be_traced_has_no_gallery(study):
    row, trials = study
    assert architectures.section(row, trials, []) == ""
    assert architectures.section(row, trials, [derived(t.id, text="[]") for t in trials]) == ""


def test_names_full_of_markup_stay_text(study):
    row, trials = study
    text = outline(part(HOSTILE), part(HOSTILE, 0, choice=f"{HOSTILE} = {HOSTILE}", by=HOSTILE))
    log = json.dumps([{"operation": "update", "at": HOSTILE, "by": HOSTILE, "values": {}}])
    named = [replace(trial, params={HOSTILE: HOSTILE}) for trial in trials]
    html = architectures.section(row, named, [derived(trials[0].id, text=text, log=log)])
    assert "<script" not in html
    assert html.count("&lt;/svg&gt;") > 5
    ET.fromstring(html.replace("{{", "").replace("}}", ""))


@pytest.mark.extension("report")
def test_the_report_of_a_thousand_trials_shows_six(tmp_path):
    from penstock.extensions.report.report import write_report

    spec = study_spec(n_trials=1000)
    reader = make_study(tmp_path, spec)
    trials = reader.trials(spec.id)
    ledger = SqlLedger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    events = [derived(each.id, digest=each.id) for each in trials]
    ledger.commit(Batch(events=list(enumerate(events, reader.newest() + 1))))
    ledger.close()
    page = write_report(reader, spec.id, tmp_path / "r.html").read_text()
    assert len(trials) == 1000
    assert len(numbers(page)) == 6
    assert "The best 6 of 1000 different ones" in page
