"""Studies tell people of their ends on a real installation: once, and with nobody held up."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from patience import until
from penstock import create_study
from penstock.app.host import locks
from penstock.extensions.notices.events import Told
from penstock.extensions.notices.letters import AGAIN
from servers.installation import Installation, variables_of
from user_code.users_objectives import quick

pytestmark = [pytest.mark.integration, pytest.mark.extension("notices", "exports", "report")]

SECRET = "hush-3f2a"


def fails(trial):
    raise RuntimeError("no such file: train.csv")


class Service:
    """A service that takes messages; while ``gate`` is closed, it answers none."""

    def __init__(self) -> None:
        self.taken: list[dict] = []
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()

    def titles(self) -> list[str]:
        return [each["title"] for each in self.taken]


@contextmanager
def serving():
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            text = self.rfile.read(int(self.headers["Content-Length"]))
            service.asked += 1
            service.gate.wait()
            service.taken.append(json.loads(text))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service.address = f"json://127.0.0.1:{server.server_port}/{SECRET}"
    yield service
    service.gate.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def service():
    with serving() as made:
        yield made


def answers(site, study):
    return [event for _, event in site.reader.of_study(study.id, Told)]


def test_an_end_is_told_and_shown_and_no_output_has_the_secret(site, service, tmp_path):
    study = create_study(study_name="tells", notify=service.address)
    study.optimize(quick, 3, show_progress=False)
    site.until(lambda: answers(site, study), "it was sent")
    assert service.titles() == ["tells ended"]
    assert "trials: 3 completed" in service.taken[0]["message"]
    shown = site.penstock("status", "tells")
    assert "json://127.0.0.1 was told that it ended" in shown
    archive, report = tmp_path / "tells.json", tmp_path / "tells.html"
    printed = [
        shown,
        site.penstock("status", "--json", "tells"),
        site.penstock("export", "tells", "-o", archive),
        site.penstock("report", "tells", "-o", report),
        report.read_text(),
        archive.read_text(),
        site.penstock("plan", "--json"),
        site.penstock("ls", "--json"),
        site.logs(),
    ]
    assert SECRET not in "\n".join(printed)


def test_a_study_that_fails_tells_first_that_all_trials_do(site, service):
    study = create_study(study_name="fails", notify=[service.address])
    study.submit(fails, 8)
    site.until(lambda: study.status == "failed", "its end")
    site.until(lambda: "fails failed" in service.titles(), "it was told")
    assert service.titles().count("fails failed") == 1
    assert service.titles().count("fails has only failing trials") <= 1


def test_a_killed_scheduler_tells_again_what_it_did_not_know_to_be_sent(site, service):
    service.gate.clear()
    study = create_study(study_name="told twice", notify=service.address)
    study.optimize(quick, 1, show_progress=False)
    site.until(lambda: service.asked, "the first try")
    kill(site)
    site.until(lambda: service.asked > 1, "the second try")
    service.gate.set()
    site.until(lambda: answers(site, study), "it was sent")
    assert service.titles().count("told twice ended") <= 2
    assert AGAIN in service.taken[-1]["message"] or AGAIN in service.taken[0]["message"]
    assert len(answers(site, study)) == 1


def test_what_was_sent_is_not_told_again_by_the_next_scheduler(site, service):
    study = create_study(study_name="told once", notify=service.address)
    study.optimize(quick, 1, show_progress=False)
    site.until(lambda: answers(site, study), "it was sent")
    kill(site)
    study.optimize(quick, 1, show_progress=False)
    site.until(lambda: len(answers(site, study)) == 2, "its second end was sent")
    assert service.titles() == ["told once ended"] * 2
    assert not any(AGAIN in each["message"] for each in service.taken)


def test_a_service_that_never_answers_holds_nothing_up(site):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"json://127.0.0.1:{silent.getsockname()[1]}/{SECRET}?rto=900&cto=900"
        study = create_study(study_name="hung", notify=address)
        study.optimize(quick, 2, show_progress=False)
        other = create_study(study_name="after it")
        other.optimize(quick, 2, show_progress=False)
        assert other.status == "complete"
        assert answers(site, study) == []


def test_an_installation_tells_of_all_studies_by_variables(tmp_path, monkeypatch):
    with serving() as service, serving() as team:
        monkeypatch.setenv("TEAM", team.address)
        site = Installation(tmp_path / "home", devices="cpu:1x1", notify=service.address)
        try:
            with variables_of(site):
                assert "json://127.0.0.1: taken" in site.penstock("notify")
                study = create_study(study_name="here", notify="$TEAM")
                study.optimize(quick, 1, show_progress=False)
                until(lambda: len(answers(site, study)) == 2, "both were told", site.logs)
                assert {each.to for each in answers(site, study)} == {"$TEAM", "$PENSTOCK_NOTIFY"}
                assert service.titles() == ["Penstock", "here ended"]
                assert team.titles() == ["here ended"]
                assert SECRET not in site.reader.study("here").spec_json
                site.penstock("down")  # a notice never holds it up
        finally:
            site.close()


def kill(site):
    """Kill the scheduler as a crash does, and wait for the next one."""
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
