"""The benchmark of attacks draws the same ones from a seed, and counts what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from penstock.tests.hostile import campaign as hostile
from penstock.tests.hostile import user
from penstock.tests.hostile.acts import ACTS
from penstock.tests.hostile.site import Field, kill
from penstock.tests.hostile.terms import MARKS
from penstock.tests.hostile.verdict import KINDS, Attack, Verdict

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(MARKS, "")  # so that what the site sets is undone
    found = Field(tmp_path)
    found.verdict = Verdict(Attack("", KINDS[0], "", lambda _: None))
    found.settings.ensure_home()
    return found


def test_a_seed_has_its_attacks_of_every_kind_and_half_of_them_are_drawn():
    attacks = hostile.draw(3)
    names = [attack.name for attack in attacks]
    assert names == [attack.name for attack in hostile.draw(3)]
    assert set(names) != {attack.name for attack in hostile.draw(4)}
    assert len(set(names)) == len(names) >= 60
    assert min(Counter(attack.kind for attack in attacks).values()) >= 12
    assert {attack.kind for attack in attacks} == set(KINDS)
    assert 2 * sum(attack.generated for attack in attacks) >= len(attacks)


def test_the_short_form_has_every_kind_and_drawn_ones_too():
    few = hostile.short(hostile.draw(0))
    assert Counter(attack.kind for attack in few) == dict.fromkeys(KINDS, hostile.QUICK)
    assert {attack.generated for attack in few} == {True, False}


def test_a_value_is_only_wrong_where_one_is_told_and_code_hangs_only_where_time_is_limited():
    assert not user.possible("objective", "last", ACTS["NaN"])
    assert not user.possible("epochs", "return", ACTS["NaN"])
    assert user.possible("objective", "return", ACTS["NaN"])
    assert not user.possible("objective", "import", ACTS["sleeps"])
    assert user.possible("objective", "import", ACTS["segfault"])


def test_a_process_of_the_installation_that_is_no_service_is_left_behind(site):
    environment = {"PENSTOCK_HOME": str(site.home)}
    command = [sys.executable, "-S", "-c", "print(flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen(command, env=environment, **pipes) as ours,
        subprocess.Popen(command, env={}, **pipes) as marked,
        subprocess.Popen(command, env={}, **pipes) as strangers,
    ):
        for process in (ours, marked, strangers):
            process.stdout.readline()  # it has become the program
        site.marks.write_text(f"{marked.pid}\n")
        left = site.left_behind()
        kill([psutil.Process(process.pid) for process in (ours, marked, strangers)])
    assert {process.pid for process in left} == {ours.pid, marked.pid}


UNCLEAR = {
    "": "says ''",
    "died: exit code 0": "exit code 0",
    "None": "says 'None'",
    "ValueError: the dog": "names neither",
    f'File "{ROOT}/app/runner/runner.py", line 3\nKeyError: cat': "our own frames",
}


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_message_that_does_not_say_what_happened_is_unclear(site, text):
    site.clear(text, "cat", "the trial")
    (words,) = site.verdict.found["unclear"]
    assert UNCLEAR[text] in words


def test_a_message_that_says_what_happened_is_clear(site):
    site.clear("ValueError: the cat sat on the keyboard", "cat", "the trial")
    assert site.verdict.why == ""


def test_tracebacks_that_are_new_in_a_services_log_are_counted_and_a_trainers_are_not(site):
    text = "Traceback (most recent call last):\n  File 'x'\nValueError: cat\n"
    scheduler, trainer = site.settings.logs / "scheduler.log", site.settings.logs / "trainer-0.log"
    for log in (scheduler, trainer):
        log.write_text(text)
    before = site.log_sizes()
    assert site.tracebacks(before) == []
    for log in (scheduler, trainer):
        log.write_text(text * 2)
    assert site.tracebacks(before) == ["scheduler.log: ValueError: cat"]


def test_what_a_worker_adds_to_its_log_is_found_whatever_another_workers_log_holds(site):
    first, second = (site.settings.logs / f"worker-cpu.n.{i}.log" for i in (0, 1))
    first.write_text("ready\n")
    second.write_text("ready\nthe broker does not answer\n")
    before = site.log_sizes()
    first.write_text("ready\ndropped an element\n")
    assert dict(site.added(before)) == {first.name: "dropped an element\n", second.name: ""}
    first.write_text("new\n")
    assert dict(site.added(before))[first.name] == "new\n", "it was emptied meanwhile"


def test_what_the_logs_hold_is_told_from_the_rest(site):
    (site.settings.logs / "agent.log").write_bytes(bytes(3000))
    (site.home / "key").write_bytes(bytes(64))
    assert site.bytes() == (3000, 64)
