"""Logs stay small while any process writes them, and their writers never wait or die."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from patience import until
from penstock.app.host import locks, log_keeper
from penstock.app.host.log_keeper import LogKeeper, trim
from penstock.app.host.logs import last_error, open_log, tail, uncaught
from penstock.app.host.settings import load

LIMIT = 1 << 20

#: A program that writes lines as fast as it can until a byte comes in, or its limit of bytes is
#: reached, and prints their number. It writes its last line when its input ends.
FLOOD = """
import os, select, sys
block = b"".join(b"%063d\\n" % i for i in range(4096))
os.write(1, b"the beginning\\n")
written = 0
while written < int(sys.argv[1]) and not select.select([0], [], [], 0)[0]:
    written += os.write(1, block)
os.write(1, b"the end\\n")
print(written, file=sys.stderr)
"""


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home", log_limit=LIMIT, log_age=1.0)
    settings.ensure_home()
    return settings


def _readable(file):
    return bool(select.select([file], [], [], 0)[0])


def test_a_flood_is_cut_while_it_lasts_and_says_how_much_that_was(settings):
    path = settings.logs / "trainer-a.log"
    sizes = []

    def is_cut_often():
        """Return True if far more was written than the log's size ever was at a check."""
        sizes.append(path.stat().st_size)
        text = Path(f"/proc/{child.pid}/io").read_text()
        written = int(re.search(r"wchar: (\d+)", text)[1])
        largest, middle = max(sizes), sorted(sizes)[len(sizes) // 2]
        return written > max(50 * LIMIT, 3 * largest, 8 * middle)

    # Two of them, as the scheduler and the agent have one each.
    with LogKeeper(settings), LogKeeper(settings), open_log(path) as output:
        pipes = {"stdin": subprocess.PIPE, "stdout": output, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", FLOOD, str(4 << 30)], **pipes) as child:
            until(is_cut_often, "it is cut while it lasts", lambda: f"{sizes}")
            child.stdin.write(b"enough\n")
            child.stdin.flush()
            # What is written in the instant of a cut may be lost: the end comes after the last cut.
            until(lambda: _readable(child.stderr) and path.stat().st_size <= LIMIT)
            _, said = child.communicate()
    written = int(said)
    text = path.read_bytes()
    [cut] = re.findall(rb"\[penstock: about +(\d+) bytes were cut here", text)
    assert text.startswith(b"the beginning\n")
    assert text.endswith(b"the end\n")
    assert int(cut) == pytest.approx(written, rel=0.2)


def test_a_log_is_cut_under_a_writer_who_is_stopped_killed_or_gone(settings):
    path = settings.logs / "worker-a.log"
    program = "import os, time\nwhile True: os.write(1, b'x' * 99 + b'\\n'); time.sleep(0)"
    with open_log(path) as output:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=output)
    until(lambda: path.stat().st_size > LIMIT)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert 0 < trim(path, LIMIT) < LIMIT * 0.6
    child.send_signal(signal.SIGCONT)
    until(lambda: path.stat().st_size > LIMIT)
    child.kill()
    child.wait()
    first = int(re.search(rb"about +(\d+)", path.read_bytes())[1])
    before = path.stat().st_size
    trim(path, LIMIT)
    text = path.read_bytes()
    [again] = re.findall(rb"about +(\d+) bytes were cut", text)
    assert int(again) - first == pytest.approx(before - len(text), abs=300), "cuts add up"
    lines = text.partition(b"\n[penstock")[2].splitlines()[1:]
    assert {len(line) for line in lines} == {99}, "what is kept begins with a line"
    assert trim(path, LIMIT) == 0, "it is short enough now"


@pytest.mark.parametrize("content", [b"x" * 3 * LIMIT, b"\n" * 3 * LIMIT, b"[penstock: \n" * LIMIT])
def test_any_content_is_cut(settings, content):
    path = settings.logs / "a.log"
    path.write_bytes(content)
    assert trim(path, LIMIT) == path.stat().st_size < LIMIT * 0.6


def test_a_writer_that_leaves_a_hole_cannot_make_it_grow(settings):
    """A log that its own writer has made a terabyte long, on paper."""
    path = settings.logs / "a.log"
    path.write_bytes(b"begin\n")
    os.truncate(path, 1 << 40)
    trim(path, LIMIT)
    assert path.stat().st_size < LIMIT


def test_what_is_no_log_of_ours_is_left(settings, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x" * 2 * LIMIT)
    (settings.logs / "link.log").symlink_to(elsewhere)
    os.mkfifo(settings.logs / "pipe.log")
    (settings.logs / "folder.log").mkdir()
    (settings.logs / "notes.txt").write_bytes(b"x" * 2 * LIMIT)
    long = settings.logs / "long.log"
    long.write_bytes(b"x" * 2 * LIMIT)
    with LogKeeper(settings):
        until(lambda: long.stat().st_size < LIMIT)
    assert elsewhere.stat().st_size == 2 * LIMIT
    assert (settings.logs / "notes.txt").stat().st_size == 2 * LIMIT


def test_old_logs_are_emptied_and_stay_for_those_who_have_them_open(settings):
    old, new = (settings.logs / f"trainer-{name}.log" for name in ("old", "new"))
    with open_log(old) as output, LogKeeper(settings):
        for path in (old, new):
            path.write_bytes(b"x")
        os.utime(old, (time.time() - 2 * 86_400,) * 2)
        until(lambda: old.stat().st_size == 0)
        output.write(b"more\n")
        time.sleep(2 * log_keeper.PERIOD)  # nothing tells of what does not happen
    assert old.read_bytes() == b"more\n"
    assert new.read_bytes() == b"x"


def test_one_cuts_at_a_time_and_two_keepers_do_not_cut_twice(settings):
    path = settings.logs / "a.log"
    path.write_bytes(b"x" * 2 * LIMIT)
    other = ExitStack()
    other.enter_context(locks.hold(settings.run, log_keeper.NAME))
    with other, LogKeeper(settings):
        time.sleep(2 * log_keeper.PERIOD)  # as above
        assert path.stat().st_size == 2 * LIMIT
        other.close()
        until(lambda: path.stat().st_size < LIMIT)


def test_last_words_steer_no_terminal(settings):
    path = settings.logs / "a.log"
    path.write_bytes(
        b"one\n\x1b[31mred\x1b[0m \x1b]0;title\x07\xff 10%\r 20%\nlast \x9b\xc2\x9b2J\n"
    )
    assert tail(path, 3) == "red \ufffd 10%\n 20%\nlast \ufffd"
    assert tail(settings.logs / "none.log") == ""


def test_what_is_no_file_has_no_last_words(settings):
    os.mkfifo(settings.logs / "pipe.log")
    (settings.logs / "folder.log").mkdir()
    assert tail(settings.logs / "pipe.log") == tail(settings.logs / "folder.log") == ""


def test_a_log_is_for_its_owner(settings):
    before = os.umask(0)
    try:
        open_log(settings.logs / "a.log").close()
    finally:
        os.umask(before)
    assert (settings.logs / "a.log").stat().st_mode & 0o777 == 0o600


def test_an_exception_that_nobody_caught_is_what_a_log_ends_with(tmp_path):
    path = tmp_path / "trainer.log"
    assert uncaught(path, 0) == ""
    old = "Traceback (most recent call last):\n  File x\nTypeError: of before\n"
    path.write_text(old)
    assert uncaught(path, 0) == "TypeError: of before"
    assert uncaught(path, len(old)) == ""
    path.write_text(old.replace("TypeError: of before", "lib.Odd"))
    assert uncaught(path, 0) == "lib.Odd"
    path.write_text("ValueError: a line that was printed\n")
    assert uncaught(path, 0) == ""
    path.write_text(f"{old}and more was printed\n")
    assert uncaught(path, 0) == ""


def test_the_line_that_names_the_exception(tmp_path):
    path = tmp_path / "worker.log"
    assert last_error(path) == ""
    path.write_text("one\ntwo\n\n")
    assert last_error(path) == "two"
    path.write_text("Traceback\n  File x\nsome.lib.CatWarning: a cat\n\nmore of its words\n")
    assert last_error(path) == "some.lib.CatWarning: a cat"
