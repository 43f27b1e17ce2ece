"""A user's file with any content is read, or refused with an error of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from fuzz.fuzzing import EXAMPLES, ODD, fuzzed, in_time, spoilt_bytes, spoilt_json, spoilt_text
from hypothesis import strategies as st
from ledgers.study_ledger import make_study, study_spec
from penstock.app.client.study.handle import StudyHandle
from penstock.app.client.study.study_file import run_study_file
from penstock.app.common.versioned_file import to_text
from penstock.app.host import locks
from penstock.app.host.settings import Settings, load
from penstock.app.ledger.history import read_file, to_json
from penstock.app.server.runner.imports import check_imported
from penstock.app.server.services.services import desired_state
from penstock.app.spec.conditions import parse_conditions
from penstock.app.spec.space import (
    Categorical,
    Float,
    Int,
    check_params,
    grid_size,
    parameter,
    parse_space,
)
from penstock.base.errors import PenstockError, UsageError
from penstock.profiling.devices.discovery import Gpu, Machine, find_devices
from penstock.profiling.similarity.history import HistoryEntry
from penstock.scheduler.engine.engine import Engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "workload.yaml"
LEARNING = "    learning: {start: 1, best: [0.1, 0.2], rate: [0.5, 1]}\n"
WORKLOAD = EXAMPLE.read_text().replace("    spread: 0.3\n", f"    spread: 0.3\n{LEARNING}")
STUDY = """\
code: math:pi
study_name: digits
direction: maximize
metric: accuracy
seed: 3
n_trials: 9
sampler: random
strategy: {ASHA: {max_epochs: 9}}
space:
  lr: {Float: {low: 0.0001, high: 0.1, log: true}}
  units: {Int: {low: 16, high: 64, step: 16}}
  name: [sgd, adam]
  momentum: {Float: {low: 0.8, high: 0.99, when: {name: sgd}}}
"""


def plain(text):
    from ruamel.yaml import YAML

    return json.dumps(YAML(typ="safe", pure=True).load(text))


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    return path


def small(text):
    """YAML is read at a megabyte in some seconds; what is long is the affair of its reader."""
    return len(text) < 5000


@pytest.fixture(scope="module")
def read_workload():
    from penstock.extensions.simulation.workload_file import read_workload

    return read_workload


@pytest.mark.extension("simulation")
@fuzzed(
    content=spoilt_bytes(WORKLOAD.encode()).filter(small)
    | spoilt_json(plain(WORKLOAD)).filter(small),
    examples=2 * EXAMPLES,
)
def test_a_workload_file_is_one_or_refused(tmp_path, read_workload, content):
    file = written(tmp_path, "workload.yaml", content)
    with in_time():
        try:
            read_workload(file)
        except UsageError:
            return


@pytest.mark.extension("simulation")
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("max_epochs: 27", "max_epochs: 9223372036854775807", "n_trials = 27 is refused"),
        ("seconds: 40", f"seconds: 1{'0' * 400}", "a number from"),
        ("n_trials: 27", "n_trials: 99999999", "is refused"),
        ("max_epochs: 27", "max_epochs: 2000000", "n_trials times max_epochs"),
    ],
)
def test_a_workload_that_would_fill_the_memory_is_refused(
    tmp_path, read_workload, before, after, words
):
    assert LEARNING in WORKLOAD
    assert before in WORKLOAD
    file = written(tmp_path, "workload.yaml", WORKLOAD.replace(before, after))
    with in_time(), pytest.raises(UsageError, match=words):
        read_workload(file)


@pytest.mark.extension("simulation")
@pytest.mark.parametrize("text", ["seed: 2020-99-99", f"seed: {'9' * 5000}", "seed: !!float x"])
def test_a_plain_value_of_yaml_that_is_none_is_refused(tmp_path, read_workload, text):
    with in_time(), pytest.raises(UsageError, match=r"is not YAML: .*; quote what is text"):
        read_workload(written(tmp_path, "workload.yaml", text))


@fuzzed(
    content=spoilt_bytes(STUDY.encode()).filter(small) | spoilt_json(plain(STUDY)).filter(small),
    examples=2 * EXAMPLES,
)
def test_a_study_file_is_refused_where_it_cannot_be(tmp_path, monkeypatch, content):
    monkeypatch.setattr(StudyHandle, "ensure_up", lambda *_: pytest.fail("it would run"))
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    file = written(tmp_path, "study.yaml", content)
    with in_time(), pytest.raises(PenstockError):
        run_study_file(file)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    from penstock.extensions.exports.archive import archive_of

    spec = study_spec(n_trials=3)
    reader = make_study(tmp_path_factory.mktemp("there"), spec, fails=(1,))
    return to_text(archive_of(reader, spec.id))


@pytest.mark.extension("exports")
def test_an_import_is_taken_by_the_engine_or_refused(tmp_path, export):
    from penstock.extensions.exports.archive import read_archive, to_event

    @fuzzed(text=spoilt_json(export), examples=2 * EXAMPLES)
    def is_taken_or_refused(text):
        file = written(tmp_path, "export.json", text)
        engine = Engine()
        with in_time():
            try:
                event = to_event(read_archive(file))
                check_imported(event)
            except UsageError:
                return
            engine.handle(event)

    is_taken_or_refused()


ENTRY = HistoryEntry(
    workload="w", machine="cpu x 1 cores", source="s", profile=(("a", 1.0),),
    config=(("threads", 2),), speedup=1.5, joules=None, windows=3, at=5.0, spread=0.1,
)  # fmt: skip


@fuzzed(text=spoilt_json(to_json([ENTRY])) | spoilt_text(to_json([ENTRY])))
def test_a_file_of_the_history_is_one_or_refused(tmp_path, text):
    file = written(tmp_path, "history.json", text)
    with in_time():
        try:
            found = read_file(file)
        except UsageError:
            return
    file.write_text(to_json(found))
    assert read_file(file) == found


UP = {"devices": "cpu:1x1", "at": 5.0, "stays": True,
      "services": [{"name": "scheduler", "argv": ["/bin/true", "x"]}]}  # fmt: skip


@fuzzed(content=spoilt_json(UP) | spoilt_bytes(json.dumps(UP).encode()))
def test_a_wish_that_was_spoilt_counts_as_none(tmp_path, content):
    settings = Settings(home=tmp_path)
    settings.ensure_home()
    written(settings.run, "up.json", content)
    with in_time():
        found = desired_state(settings)
    if found is not None:
        assert all(type(part) is str for each in found.services for part in (each.name, *each.argv))
        assert isinstance(found.devices, str)


@fuzzed(content=spoilt_bytes(b"4711\n") | st.sampled_from([b"-1", b"0", b"9" * 30, b"9" * 5000]))
def test_a_lock_whose_text_was_spoilt_names_no_process(tmp_path, monkeypatch, content):
    monkeypatch.setattr(locks, "TAKEOVER_TIMEOUT", 0.001)
    with locks.hold(tmp_path, "agent"):
        (tmp_path / "agent.lock").write_bytes(content)
        with in_time():
            found = locks.pid_of(tmp_path, "agent")
            assert found is None or 0 < found < 1 << 22
            assert not locks.wait_gone(tmp_path, "agent", 0.0)


SETTINGS = {
    "home": "/tmp/x", "broker": "redis://:secret@h:1/0", "ledger": "postgresql://u:secret@h/d",
    "store": "s3://bucket/x", "node": "a-1", "address": "10.0.0.1", "devices": "auto",
    "policy": "waterfill", "lease_ms": "5000", "claim_timeout": "6", "idle_stop": "60",
    "powercap": "/sys", "flower_port": "5555",
}  # fmt: skip


@fuzzed(
    name=st.sampled_from(sorted(SETTINGS)),
    text=spoilt_text(*SETTINGS.values()) | st.sampled_from(["~nobody-here/x", *ODD]),
    by_environment=st.booleans(),
    examples=3 * EXAMPLES,
)
def test_a_setting_is_one_or_refused_by_its_name(name, text, by_environment):
    with pytest.MonkeyPatch.context() as patch, in_time():
        if by_environment:
            try:
                patch.setenv(f"PENSTOCK_{name.upper()}", text)
            except (ValueError, UnicodeError):  # no variable can hold it
                return
        try:
            load(**({} if by_environment else {name: text}))
        except UsageError as error:
            assert name in str(error).lower()
            return


MACHINE = Machine("a", tuple(range(8)), 1 << 34, (Gpu("GPU-1234-5", "A", 1 << 30),))


@fuzzed(
    spec=spoilt_text("auto", "cpu:2x1", "cpu:1x2*2", "gpu:all", "gpu:0,1*16", f"gpu:{'9' * 5000}")
    | st.from_regex(r"\A(cpu:\d+x\d+|gpu:\d+(,\d+)*)(\*\d+)?\Z"),
    examples=2 * EXAMPLES,
)
def test_devices_are_there_or_refused(spec):
    with in_time():
        try:
            found = find_devices(spec, MACHINE)
        except UsageError:
            return
    assert found
    assert all(0 < each.slots <= 16 for each in found)


NUMBERS = st.one_of(
    st.integers(), st.floats(), st.integers(-3, 20), st.floats(0, 2), st.booleans(), st.none(),
    st.text(max_size=3), st.sampled_from([10**30, 10**400, 5e-324, 1e308, -1e308, 2**63, 1e-300]),
)  # fmt: skip


@fuzzed(
    kind=st.sampled_from([Float, Int]),
    low=NUMBERS,
    high=NUMBERS,
    log=st.booleans() | st.just("x"),
    step=NUMBERS,
    value=NUMBERS,
    examples=10 * EXAMPLES,
)
def test_a_range_is_one_or_refused_and_so_is_a_value_in_it(kind, low, high, log, step, value):
    with in_time():
        try:
            given = kind(low, high, log=log, step=step)
        except UsageError:
            return
        assert parameter(given.to_json()).low == given.low
        space = (("x", given.to_json()),)
        for use in (lambda: check_params(space, {"x": value}), lambda: grid_size(space)):
            with suppress(UsageError):
                use()


CHOICES = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@fuzzed(
    space=st.dictionaries(
        st.text(max_size=2) | st.integers(),
        CHOICES | st.tuples(CHOICES, CHOICES | st.dictionaries(st.text(max_size=2), CHOICES)),
        max_size=3,
    ),
    examples=3 * EXAMPLES,
)
def test_a_space_is_one_or_refused(space):
    with in_time():
        try:
            made = {
                name: Categorical(each[0], when=each[1]) if isinstance(each, tuple) else each
                for name, each in space.items()
            }
            found, conditions = parse_space(made), parse_conditions(made)
            grid_size(found, conditions)
        except UsageError:
            return


def test_many_choices_are_read_in_time():
    with in_time():
        Categorical(list(range(50_000)))
