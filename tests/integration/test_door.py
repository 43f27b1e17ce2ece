"""Refused at the door: field, value and what is allowed; exit status 2 or 3; nothing is started."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from servers.installation import CORES, Installation

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"
#: A user's script. What it tunes is never reached.
SCRIPT = """
import json
import threading
import penstock
from penstock import ASHA, Float, FullBudget, Int

class Net(penstock.TorchTrainable):
    pass

def objective(trial):
    return trial.suggest_float("x", 0, 1)

def study(what=objective, space=None, n_trials=4, devices=None, **options):
    study = penstock.create_study(**options)
    study.optimize(what, n_trials, space=space, devices=devices)

def refusals(calls):
    for call in calls:
        try:
            eval(call)
        except penstock.UsageError as error:
            yield str(error)
        else:
            yield "it was not refused"

if __name__ == "__main__":
"""

#: Refused calls: the call, the named field with its value, and the allowed values.
REFUSED = [
    ("study(space={'lr': Float(1.0, 1.0)})", "Float.high = 1.0", "above low = 1.0"),
    ("study(space={'lr': Float(1.0, 0.1)})", "Float.high = 0.1", "above low = 1.0"),
    ("study(space={'n': Int(9, 3)})", "Int.high = 3", "above low = 9"),
    ("study(space={'act': []})", "Categorical.choices = []", "at least one value"),
    ("study(space={'lr': Float(0.0, 1.0, log=True)})", "Float.low = 0.0", "above 0, because log"),
    ("study(space={'n': Int(0, 9, log=True)})", "Int.low = 0", ">= 1, because log"),
    ("study(space={})", "space = {}", "at least one name"),
    (
        "study(sampler='annealing')",
        "sampler = 'annealing'",
        "grid, random, qmc, tpe, bohb, gp, cmaes, nsga2, evolution",
    ),
    ("study(strategy='hyperband')", "strategy = 'hyperband'", "ASHA(...)"),
    ("study(strategy=ASHA(max_epochs=9, eta=1))", "ASHA.eta = 1", ">= 2"),
    ("study(n_trials=0)", "n_trials = 0", ">= 1"),
    ("study(lambda trial, lock=threading.Lock(): 0.0)", "lambda", "top level of a .py file"),
    ("study(lambda trial, data=bytes(33 << 20): 0.0)", "more than 32 MiB", "inside the function"),
    ("study(devices='tpu:0')", "devices = 'tpu:0'", "cpu:<devices>x<cores>"),
    ("study(devices='cpu:999x1')", "devices = 'cpu:999x1'", f"1 to {CORES} cores"),
    ("study(devices='gpu:63')", "devices = 'gpu:63'", "this machine has"),
]


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """Return the message of each call in one process of a user; check that nothing was started."""
    folder = tmp_path_factory.mktemp("door")
    site = Installation(folder / "home")
    script = folder / "script.py"
    calls = [call for call, _, _ in REFUSED]
    script.write_text(f"{SCRIPT}    print(json.dumps([*refusals({calls!r})]))\n")
    said = site.finish(site.python(script))
    assert nothing_started(site)
    return dict(zip(calls, json.loads(said), strict=True))


def nothing_started(site):
    """No service is wanted, and none has ever said a word."""
    home = site.settings.home
    return not [*home.glob("run/up.json"), *home.glob("logs/*")]


@pytest.fixture
def site(tmp_path):
    """An installation that was never started, and is not by what is refused."""
    site = Installation(tmp_path / "home")
    yield site
    assert nothing_started(site)


@pytest.fixture
def script(tmp_path):
    """A script that would run."""
    path = tmp_path / "script.py"
    path.write_text(f"{SCRIPT}    study()\n")
    return path


@pytest.mark.parametrize(("call", "given", "allowed"), REFUSED)
def test_it_names_the_field_the_value_and_what_is_allowed(messages, call, given, allowed):
    assert given in messages[call]
    assert allowed in messages[call]


def test_on_the_command_line_it_is_one_line_and_exit_status_2(site, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"{SCRIPT}    study(sampler='annealing')\n")
    said = site.penstock("run", script, status=2)
    names = "grid, random, qmc, tpe, bohb, gp, cmaes, nsga2, evolution"
    refused = f"penstock: sampler = 'annealing' is refused: allowed is {names}"
    # Before it stands what is started, where nothing runs yet.
    *started, last = said.splitlines()
    assert last == f"{refused} (at script.py:14)"
    assert started in ([], ["starting broker, scheduler and workers for script.py"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "nowhere.py"), "there is no file nowhere.py"),
        (("up", "--devices", "tpu:0"), "devices = 'tpu:0' is refused"),
        (("worker", "--devices", "cpu:999x1"), "devices = 'cpu:999x1' is refused"),
    ],
    ids=["a script that is not there", "an unknown device", "too many cores"],
)
def test_what_a_command_is_given_is_checked_before_anything_starts(site, arguments, words):
    assert words in site.penstock(*arguments, status=2)


def test_a_data_folder_that_is_not_there_is_refused_before_anything_starts(site, tmp_path):
    environment = {**site.environment, "PENSTOCK_DATA": str(tmp_path / "no-such-data")}
    said = site.penstock("run", EXAMPLES / "mnist_lenet.py", status=2, env=environment)
    assert f"PENSTOCK_DATA = '{tmp_path}/no-such-data' is refused" in said
    assert not (tmp_path / "no-such-data").exists()


def test_a_state_folder_that_is_a_file_is_refused(site, script):
    site.settings.home.write_text("")
    said = site.penstock("run", script, status=2)
    assert f"PENSTOCK_HOME = '{site.settings.home}' is refused" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [("ro", "Read-only file system"), ("size=600k", "it is full")],
    ids=["read-only", "full"],
)
def test_a_state_folder_that_takes_no_data_is_refused(site, script, options, words):
    """A file system of its own, mounted in a namespace that ends with the command."""
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            ["unshare", "--mount", "--map-root-user", "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no mount namespaces here: run as root, or allow user namespaces")
    home = site.settings.home
    home.mkdir()
    inner = f"mount -t tmpfs -o {options} tmpfs '{home}' && exec \"$@\""
    process = subprocess.Popen(
        [
            *("unshare", "--mount", "--map-root-user", "sh", "-c", inner, "sh"),
            *(sys.executable, "-P", "-m", "penstock", "run", str(script)),
        ],
        env=site.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = site.finish(process, status=2)
    assert f"PENSTOCK_HOME = '{home}' is refused" in said
    assert words in said


@pytest.fixture(params=["nobody listens", "nobody answers", "not Redis"])
def broken_broker(request):
    """The port of a broker that is none."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param != "nobody listens":
            listening.listen()
        if request.param == "not Redis":
            threading.Thread(target=_greet, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1]


def _greet(listening):
    try:
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"220 mail.example.org ESMTP\r\n")
    except OSError:
        pass  # the test is over


def test_a_broker_that_does_not_answer_is_refused_in_time_and_its_password_not_shown(
    tmp_path, script, broken_broker
):
    url = f"redis://penny:s3cret@127.0.0.1:{broken_broker}/0"
    site = Installation(tmp_path / "home", broker=url)
    said = site.penstock("run", script, status=3)  # which ends, where the broker never answers
    assert f"redis://***@127.0.0.1:{broken_broker}/0 does not answer" in said
    assert "s3cret" not in said
    assert "penny" not in said
    assert "Traceback" not in said
    assert nothing_started(site)


def test_a_broker_url_that_is_none_is_refused_without_its_password(site, script):
    environment = {**site.environment, "PENSTOCK_BROKER": "amqp://penny:s3cret@queue/"}
    said = site.penstock("run", script, status=2, env=environment)
    assert "PENSTOCK_BROKER = 'amqp://***@queue/' is refused" in said
    assert "redis://" in said


def test_a_setting_out_of_its_range_is_refused(site, script):
    environment = {**site.environment, "PENSTOCK_LEASE_MS": "5"}
    said = site.penstock("run", script, status=2, env=environment)
    assert "PENSTOCK_LEASE_MS = '5' is refused: allowed is 300 to 600000 ms" in said
