"""optuna-dashboard over ``penstock.storage()``: what is written in the browser is in the ledger."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

import optuna_dashboard
import penstock
import pytest
from patience import PATIENCE
from penstock.app.client.study.storage import open_storage

pytestmark = pytest.mark.integration


class Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@pytest.fixture
def server(site):
    application = optuna_dashboard.wsgi(penstock.storage())
    with make_server("127.0.0.1", 0, application, Threads) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()
        thread.join(PATIENCE)


def ask(url, method="GET", **body):
    request = urllib.request.Request(url, method=method, headers={"Accept-Encoding": ""})
    if body:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def test_notes_and_attributes_of_the_dashboard_are_in_the_ledger(site, server):
    study = penstock.create_study(study_name="noted")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1, show_progress=False)
    mine = study.ask()
    shown = ask(f"{server}/studies")["study_summaries"]
    [summary] = [summary for summary in shown if summary["study_name"] == "noted"]
    at = f"{server}/studies/{summary['study_id']}"
    trials = [trial["trial_id"] for trial in ask(at)["trials"]]
    long = "a *note* of several attributes\n" * 200

    ask(f"{at}/note", "PUT", version=1, body="what this is for")
    ask(f"{at}/{trials[0]}/note", "PUT", version=1, body=long)
    ask(f"{server}/trials/{trials[1]}/user-attrs", "POST", user_attrs={"tag": "odd", "stars": 3})
    ask(f"{server}/trials/{trials[1]}/tell", "POST", state="Complete", values=[0.5])

    # The page that is open shows them, and so does another process that reads the ledger.
    assert ask(at)["note"] == {"version": 1, "body": "what this is for"}
    storage = open_storage(site.settings)
    number = storage.get_study_id_from_name("noted")
    attrs = storage.get_study_system_attrs(number)
    assert attrs["dashboard:note_str:0"] == "what this is for"
    assert optuna_dashboard.get_note(study) == "what this is for"
    parts = [attrs[f"dashboard:{trials[0]}:note_str:{part}"] for part in range(4)]
    assert "".join(parts) == long
    told = storage.get_all_trials(number)[mine.number]
    assert (told.user_attrs, told.value) == ({"tag": "odd", "stars": 3}, 0.5)

    # A note is changed from the version that was read; a shorter one leaves nothing of the longer.
    ask(f"{at}/{trials[0]}/note", "PUT", version=2, body="short")
    shown = next(trial for trial in ask(at)["trials"] if trial["trial_id"] == trials[0])
    assert shown["note"] == {"version": 2, "body": "short"}
    with pytest.raises(urllib.error.HTTPError, match="409"):
        ask(f"{at}/note", "PUT", version=1, body="of a page that is behind")


def test_a_study_that_the_dashboard_makes_and_deletes(site, server):
    made = ask(f"{server}/studies", "POST", study_name="by hand", directions=["minimize"])
    study = penstock.load_study("by hand")
    assert study.direction.name == "MINIMIZE"
    ask(f"{server}/studies/{made['study_summary']['study_id']}", "DELETE", x=1)
    names = [each["study_name"] for each in ask(f"{server}/studies")["study_summaries"]]
    assert "by hand" not in names
    with pytest.raises(penstock.UsageError, match="by hand"):
        penstock.load_study("by hand")
    assert "by hand" not in site.penstock("ls")
    again = penstock.create_study(study_name="by hand", direction="maximize")
    again.tell(again.ask(), 1.0)
    assert penstock.load_study("by hand").direction.name == "MAXIMIZE"
