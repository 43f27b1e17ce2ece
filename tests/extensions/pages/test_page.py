"""The pages of ``penstock ui``: who is let in, what they show, and that markup stays text."""

import asyncio
import json
import math
import re
import resource
import signal
import socket
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
import uvicorn
from ledger_batches import SPEC, epoch_batch, first_batch
from markupsafe import escape
from page_server import PageServer, figures
from patience import PATIENCE
from penstock.app.client.study.control import Control
from penstock.app.host import locks
from penstock.app.ledger.codec import spec_from_json
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.show.drawings.page import mark
from penstock.app.show.stories.story import find_trial, trial_story
from penstock.base.errors import UsageError
from penstock.extensions.pages.follower import KEPT, REST, Follower, Pictures
from penstock.extensions.pages.forms import study_forms
from penstock.extensions.pages.gate import Proxy
from penstock.extensions.pages.study import CURVES, DOTS
from penstock.extensions.pages.trials import LISTED
from penstock.extensions.pages.web_server import AT_ONCE, HEAD_BYTES, MOST_WAITING, Door, serve
from penstock.extensions.report import figures as drawings
from penstock.extensions.report.timeline import timeline
from penstock.scheduler.model.study import StrategySpec
from study_ledger import make_study, start_study, study_spec
from uvicorn.server import ServerState

NAME = "\"><script>alert(1)</script>{{main}}{{ 7 * 7 }}{% raw %}</title>&amp;'"
HOSTILE = study_spec(NAME, n_trials=3, id="hostile-1a2b", metric="<b>acc</b>")
PATHS = ("/", "/study?id=digits", "/trial?id=digits&n=3", "/memory?id=digits", "/devices", "/plan")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A state folder with two studies that are over; a trial of the first one failed."""
    folder = tmp_path_factory.mktemp("home")
    make_study(folder, study_spec(n_trials=9), HOSTILE, fails=(3,))
    return folder


@pytest.fixture(scope="module")
def reader(home):
    return Reader(f"sqlite:///{home / 'ledger.db'}")


@pytest.fixture(scope="module")
def opened(home):
    server = PageServer(home)
    server.enter()
    yield server
    server.close()


class Elements(HTMLParser):
    """Parts of a page that it would load or run: addresses, handlers, and inline scripts."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.handlers, self.inline, self._script = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.handlers += [name for name in given if name.startswith("on")]
        self.addresses += [v for name, v in given.items() if name in ("src", "href", "action")]
        self._script = tag == "script" and given.get("type") != "application/json"

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if self._script and data.strip():
            self.inline.append(data)


# -- who is let in


def test_nobody_is_let_in_without_the_token(opened):
    for path in (*PATHS, "/report?id=digits", "/events?seen=0", "/page.js"):
        assert opened.ask(path, Cookie="")[0] == 401, path
        assert opened.ask(path, Cookie="penstock=guess")[0] == 401, path
    for bare in (True, False):
        assert opened.ask("/?token=guess", Cookie="", bare=bare)[0] == 403
    assert opened.ask("/act", "POST", "action=pause", Cookie="")[0] == 401


def test_the_printed_address_gives_a_cookie_that_no_script_and_no_other_site_has(opened):
    entry = f"/study?id=digits&token={opened.token}"
    status, headers, _ = opened.ask(entry, bare=True, Cookie="")
    assert (status, headers["location"]) == (303, f".{opened.folder}/study?id=digits")
    name, *flags = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", f"Path={opened.folder}"} <= set(flags)
    assert name.partition("=")[0] == "penstock"
    inside = opened.ask(entry, Cookie="")[1]
    assert (inside["location"], inside["set-cookie"]) == (
        "./study?id=digits",
        headers["set-cookie"],
    )


def test_the_cookie_holds_no_token_and_counts_in_the_secret_folder_only(opened):
    value = opened.cookie.partition("=")[2]
    assert len({value, opened.token, opened.folder[1:]}) == 3
    assert min(map(len, (value, opened.folder[1:]))) >= 22, "128 bits and more"
    assert opened.ask(f"/?token={value}", bare=True)[0] == 403
    assert opened.ask("/", Cookie=f"penstock={opened.token}")[0] == 401
    for path in (*PATHS, f"{opened.folder}x/", opened.folder, f"/x{opened.folder}/"):
        assert opened.ask(path, bare=True)[0] == 401, path


@pytest.fixture
def fresh(home):
    server = PageServer(home)
    yield server
    server.close()


def test_the_oldest_server_library_that_is_allowed_serves_the_pages(home, tmp_path):
    """Uvicorn 0.30 has no factory of event loops."""
    (tmp_path / "sitecustomize.py").write_text(
        "from uvicorn import Config\nif hasattr(Config, 'get_loop_factory'):\n"
        "    del Config.get_loop_factory\n"
    )
    with closing(PageServer(home, environment={"PYTHONPATH": str(tmp_path)})) as old:
        assert old.ask("/")[0] == 200


def test_another_server_has_another_folder_and_another_session(opened, fresh):
    for folder in (opened.folder, fresh.folder):
        assert fresh.ask(f"{folder}/", bare=True, Cookie=opened.cookie)[0] == 401
    assert opened.folder != fresh.folder


def half_open(server, count):
    """Connections that have sent half a request each."""
    begun = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")
        begun.append(connection)
    return begun


def test_half_requests_without_a_token_keep_nobody_out_and_fill_no_log(fresh):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as closing_all:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        closing_all.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        stream = fresh.connect("/events?seen=0")
        assert stream.readline().startswith(b"retry")
        before = opened_files(fresh)
        begun = half_open(fresh, 1_200)
        for connection in begun:
            closing_all.callback(connection.close)
        # Those that waited longest made room: who is let in has a place, and keeps it.
        assert begun[0].recv(1) == b""
        # The loop accepts AT_ONCE in a round, and counts them a round later.
        assert opened_files(fresh) <= before + MOST_WAITING + 3 * AT_ONCE
        for path in PATHS:
            assert fresh.ask(path)[0] == 200
        with suppress(BlockingIOError):
            tail = fresh.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            assert tail, "the stream has not ended"
    assert fresh.said() == ""


def opened_files(server):
    return len([*Path(f"/proc/{server.process.pid}/fd").iterdir()])


def test_a_request_that_does_not_end_is_given_up(fresh):
    [begun] = half_open(fresh, 1)
    with begun:
        assert begun.recv(1) == b""


@pytest.mark.parametrize(
    "sent", [b"x" * (HEAD_BYTES + 1), b"GET / HTTP/1.1\r\na: " + b"x" * (1 << 20)]
)
def test_a_head_without_end_is_refused(opened, sent):
    with socket.create_connection(("127.0.0.1", opened.port), timeout=PATIENCE) as connection:
        with suppress(ConnectionError):
            connection.sendall(sent)
        with suppress(ConnectionResetError):
            assert connection.recv(12) in (b"HTTP/1.1 400", b"")


def test_who_answers_and_does_not_ask_again_is_sent_away_and_who_is_let_in_is_not():
    """Connections under the loop of a test: the time is its own."""

    class Transport(asyncio.Transport):
        def __init__(self):
            super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
            self.ended = False

        def abort(self):
            self.ended = True

        def write(self, data):
            pass

        def close(self):
            self.ended = True

    async def connected():
        async def nothing(scope, receive, send):
            """An application that is never asked."""

        door, config = Door(), uvicorn.Config(nothing, ws="none", lifespan="off")
        config.load()
        made = []
        for number in range(MOST_WAITING + 2):
            given = {"config": config, "server_state": ServerState(), "app_state": {}}
            connection = door.protocol(**given)
            connection.connection_made(transport := Transport())
            made.append((connection, transport))
            if number == 0:
                connection.let_in()
                connection.let_in()
        assert [transport.ended for _, transport in made[:3]] == [False, True, False]
        for connection, _ in made[2 : MOST_WAITING + 2]:
            connection.let_in()
        assert sum(transport.ended for _, transport in made) == 1
        for connection, _ in made:
            connection.connection_lost(None)

    asyncio.run(connected())


def test_what_fails_again_and_again_below_the_pages_is_said_now_and_then(caplog):
    door = Door()
    for number in range(1000):
        door.say(None, {"message": f"accept {number}", "exception": OSError(24, "Too many")})
    [record] = caplog.records
    assert "accept 0" in record.getMessage()
    assert "Too many" in record.getMessage()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil@localhost", ""])
def test_a_name_that_was_pointed_here_is_refused(opened, host):
    assert opened.ask("/", Host=host)[0] == 400
    assert opened.ask(f"/?token={opened.token}", Host=host, bare=True)[0] == 400


def test_a_tunnel_from_another_port_is_let_in(opened):
    assert opened.ask("/", Host="localhost:9000")[0] == 200
    status, _, text = opened.ask(
        "/act", "POST", "", Host="localhost:9000", Origin="http://localhost:9000"
    )
    assert (status, "action = " in text) == (422, True)


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "https://127.0.0.1:1"])
def test_what_changes_something_comes_from_a_page_of_ours(opened, origin):
    status, _, text = opened.ask("/act", "POST", "action=cancel&study=digits", Origin=origin)
    assert (status, "does not come from this page" in text) == (403, True)


def test_behind_a_proxy_with_a_path(home):
    server = PageServer(home, "--proxy", "https://Example.org/a/penstock/")
    try:
        assert server.url == f"https://example.org/a/penstock/?token={server.token}"
        cookie = server.enter(Host="example.org")["set-cookie"].split("; ")
        assert {f"Path=/a/penstock{server.folder}", "Secure"} <= set(cookie)
        for path in ("", "/a/penstock"):
            inside = f"{path}{server.folder}/devices"
            assert server.ask(inside, bare=True, Host="example.org")[0] == 200
        assert server.ask("/a/penstock", bare=True)[1]["location"].startswith("/a/penstock/?")
        for origin, status in (("https://example.org", 422), ("http://example.org", 403)):
            assert server.ask("/act", "POST", Origin=origin)[0] == status
    finally:
        server.close()


@pytest.mark.parametrize(
    "url",
    [
        "example.org",
        "ftp://example.org",
        "https://",
        "https://u:p@h/",
        "https://h/?a",
        "http://[",
        "https://é.org",
    ],
)
def test_a_proxys_address_that_is_none_is_refused(url):
    with pytest.raises(UsageError, match="--proxy"):
        Proxy.of(url)


def test_a_port_that_is_taken_is_refused(opened, settings, reader):
    with pytest.raises(UsageError, match=f"--port = {opened.port}"):
        serve(settings, reader, opened.port, None, print)


# -- what is shown


@pytest.mark.parametrize("path", PATHS)
def test_a_page_loads_and_runs_nothing_but_what_this_server_sends(opened, path):
    status, headers, text = opened.ask(path)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert headers["cache-control"] == "no-store"
    page = Elements(text)
    assert (page.handlers, page.inline) == ([], [])
    assert not [each for each in page.addresses if "//" in each or each.startswith("/")]


@pytest.mark.parametrize("path", PATHS)
def test_pages_and_reports_have_one_mark(opened, path):
    assert f'<span class="brand">{mark()}Penstock</span>' in opened.page(path)
    assert f'<div class="brand">{mark()}Penstock' in opened.page("/report?id=digits")


def test_styles_and_scripts_are_there_and_named_by_their_content(opened):
    page = Elements(opened.page("/study?id=digits"))
    files = [each for each in page.addresses if re.search(r"\.(js|css)\?v=", each)]
    assert [each.partition("?")[0] for each in files] == [
        "report.css",
        "page.css",
        "plotly.js",
        "charts.js",
        "page.js",
    ]
    for each in files:
        status, headers, text = opened.ask(f"/{each}")
        assert (status, bool(text)) == (200, True)
        assert "immutable" in headers["cache-control"]
        assert "{{" not in text or each.startswith("plotly")
    assert opened.ask("/nothing.js")[0] == 404


def test_the_list_has_each_study_with_its_progress(opened, reader):
    text = opened.page("/")
    assert 'href="study?id=digits-1a2b"' in text
    study = reader.study("digits")
    assert f"{len(reader.trials(study.id))}/9" in text
    assert f"{len(reader.epochs(study.id))}/" in text


def test_a_studys_pictures_are_the_reports(opened, reader):
    text = opened.page("/study?id=digits")
    study, trials, epochs = (
        reader.study("digits"),
        reader.trials("digits-1a2b"),
        reader.epochs("digits-1a2b"),
    )
    assert figures(text) == json.loads(
        json.dumps(
            {
                "curves": drawings.learning_curves(study, trials, epochs),
                "history_time": drawings.history(study, trials, epochs, by="time"),
                "timeline": timeline(study, trials, epochs),
            }
        )
    )
    assert "Best trial" in text
    assert "9 configurations by random sampling" in text
    assert "/secret" not in text
    for trial in trials:
        assert f'href="trial?id=digits-1a2b&amp;n={trial.number}"' in text


def test_a_trial_has_its_story_and_its_traceback(opened, reader):
    story = trial_story(reader, *find_trial(reader, "digits/3"))
    text = opened.page("/trial?id=digits&n=3")
    for line in story.lines:
        assert escape(line.what) in text
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in text
    assert "<b>no</b>" not in text


def test_a_report_runs_its_scripts_as_a_page_of_nowhere(opened):
    status, headers, text = opened.ask("/report?id=digits")
    assert (status, "Learning curves" in text) == (200, True)
    assert headers["content-security-policy"].startswith("sandbox allow-scripts;")


@pytest.mark.parametrize("path", ["/", "/study?id=", "/trial?n=1&id=", "/memory?id="])
def test_names_full_of_markup_are_text(opened, path):
    text = opened.page(path + (quote(NAME) if path.endswith("=") else ""))
    assert "<script>alert" not in text
    assert escape(NAME) in text
    assert "<b>acc</b>" not in text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/study?id=digit", "there is no study 'digit'; there are: "),
        ("/study", "there is no study ''"),
        ("/trial?id=digits&n=99", "there is no trial 'digits/99'"),
        ("/trial?id=digits&n=<i>", "there is no trial 'digits/<i>'; its trials are digits/0 to "),
        ("/report?id=nobody", "there is no study 'nobody'"),
    ],
)
def test_what_is_not_there_is_said_in_words(opened, path, words):
    status, _, text = opened.ask(path.replace("<i>", "%3Ci%3E"))
    assert status == 404
    assert escape(words) in text
    assert "<i>" not in text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", 9),
        ("&filter=state:failed", 1),
        ("&page=2", 0),
        ("&page=x&order=x&chosen=x", 9),
        ("&page=" + "9" * 30, 9),
    ],
)
def test_trials_are_listed_as_is_asked_for(opened, query, shown):
    assert opened.page(f"/study?id=digits{query}").count(' data-of="') == shown


def test_a_study_of_10000_trials_is_shown_a_page_at_a_time(tmp_path):
    ledger = SqlLedger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.commit(first_batch(10_000))
    ledger.commit(epoch_batch(10_000, first_seq=2, epoch=1))
    ledger.close()
    server = PageServer(tmp_path)
    try:
        server.enter()
        text = server.page(f"/study?id={SPEC.id}&page=200&order=Trial")
        numbers = [int(n) for n in re.findall(r"trial\?id=digits-1&amp;n=(\d+)", text)]
        assert numbers == list(range(9950, 10_000))
        assert "page 200 of 200" in text
        assert len(numbers) == LISTED
        assert len(figures(text)["curves"]["data"]) == CURVES
        assert f"Of 10000 trials, {CURVES} are drawn" in text
        assert f"Of 10000 trials, {DOTS} are drawn" in text
    finally:
        server.close()


def test_where_nothing_has_run_yet_pages_say_so(tmp_path):
    server = PageServer(tmp_path)
    try:
        server.enter()
        assert "penstock run SCRIPT" in server.page("/")
        assert "There is no device yet" in server.page("/devices")
        assert "no scheduler is running" in server.page("/plan")
        assert server.ask("/study?id=x")[0] == 503
    finally:
        server.close()


# -- what is live


def messages(stream):
    """The topics of each message of a stream of events, as they come."""
    for line in stream:
        if line.startswith(b"data: "):
            yield set(json.loads(line[6:]))


def topics(stream, wanted):
    """Return the topics up to the first message about ``wanted``."""
    found = set()
    for each in messages(stream):
        found |= each
        if wanted in each:
            return found
    raise AssertionError(f"the stream ended without {wanted}: {found}")


def test_pages_are_told_which_study_has_changed_and_show_it(tmp_path):
    other = study_spec("other", id="other-1a2b", n_trials=1)
    make_study(tmp_path, other)
    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    server = PageServer(tmp_path)
    try:
        server.enter()
        assert server.page("/").count('<span class="status unfinished">') == 1
        with locks.hold(tmp_path / "run", "scheduler"):
            assert server.page("/").count('<span class="status running">') == 1
        text = server.page("/study?id=digits")
        assert 'data-topics="[&#34;study:digits-1a2b&#34;,&#34;time&#34;]"' in text
        seen = re.search(r'data-seen="(\d+)"', text)[1]
        streams = [server.connect(f"/events?seen={seen}") for _ in range(100)]
        while runner.engine.state.studies:
            runner.turn(1.0)
        for stream in streams:
            assert "study:other-1a2b" not in topics(stream, "study:digits-1a2b")
            stream.close()
        with server.connect(f"/events?seen={seen}") as first:
            told = next(int(line[4:]) for line in first if line.startswith(b"id: "))
        assert int(seen) < told <= Reader(f"sqlite:///{tmp_path / 'ledger.db'}").newest()
        live = server.page("/study?id=digits", X_Penstock_Live="1")
        assert figures(live) != figures(text)
        assert '<span class="status complete">' in live
        with server.connect(f"/events?seen={seen}") as late:
            assert topics(late, "all"), "it was drawn before what the others were told of"
    finally:
        server.close()
        ledger.close()


def test_a_reader_knows_which_studies_events_are_about(reader):
    assert reader.changed(0) == {"digits-1a2b", "hostile-1a2b"}
    assert reader.changed(reader.newest()) == set()


def test_a_picture_is_drawn_once_for_all_who_were_told_of_the_same_change():
    follower = Follower(None, lambda: True)
    pictures, drawn = Pictures(follower), []

    def draw():
        drawn.append(len(drawn))
        return "", str(len(drawn))

    async def live(address):
        return int((await pictures.live(address, draw)).rest)

    async def told():
        assert set(await asyncio.gather(*(live("a") for _ in range(100)))) == {1}
        asked = time.monotonic()
        assert pictures.picture("a", draw, asked).rest == b"2", "its user asks for the present"
        assert pictures.picture("a", draw, asked).rest == b"2", "it was begun since"
        assert await live("a") == 2
        follower.announced += 1
        pictures.rested = rested = time.monotonic() + 0.2
        assert await live("a") == 3
        assert time.monotonic() >= rested, "the rest after the last picture was kept"
        for number in range(KEPT):
            await live(f"b{number}")
        assert await live("a") == 4 + KEPT, "only some are kept"

    asyncio.run(told())


def test_little_work_in_a_long_time_without_pictures_needs_no_rest(monkeypatch):
    at, cpu = [0.0], [0.0]
    clock = SimpleNamespace(monotonic=lambda: at[0], process_time=lambda: cpu[0])
    monkeypatch.setattr("penstock.extensions.pages.follower.time", clock)
    pictures = Pictures(Follower(None, lambda: True))

    def draw():
        at[0] += 1.0
        cpu[0] += 1.0
        return "", ""

    pictures.picture("a", draw, at[0])
    assert pictures.rested == 1.0 + REST
    at[0] += 3600.0
    cpu[0] += 14.0  # looks at the ledger, four a second
    pictures.picture("a", draw, at[0])
    assert pictures.rested < at[0]
    ready = at[0]
    pictures.picture("a", draw, at[0])
    assert pictures.rested == ready + 1.0 + REST
    pictures.picture("a", draw, at[0], rests=False)
    assert pictures.rested == ready + 1.0 + REST, "a person sorts, and live pages wait no longer"
    pictures.picture("a", draw, at[0])
    assert pictures.rested == ready + 2 * (1.0 + REST), "that work counts no more"


def test_what_goes_wrong_once_the_head_is_sent_is_said_in_the_page(tmp_path):
    make_study(tmp_path, study_spec(n_trials=3))
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        ledger.execute("UPDATE trial SET epoch = 7 WHERE number = 1")
        ledger.commit()
    server = PageServer(tmp_path)
    try:
        server.enter()
        text = server.page("/study?id=digits")
        assert "<h1><bdi>digits</bdi></h1>" in text
        assert "is not what was written" in text
        assert text.rstrip().endswith("</html>")
        assert server.ask("/study?id=digits", X_Penstock_Live="1")[0] == 503
    finally:
        server.close()


def test_an_older_ledger_that_was_restored_is_all_new():
    class Restored:
        def newest(self):
            return 3

    follower = Follower(Restored(), lambda: True)
    follower._newest = 7
    assert follower.look() == {"all"}
    assert follower.look() == set()


def test_a_scheduler_that_ends_is_told_of_though_no_event_says_so():
    class Still:
        def newest(self):
            return 0

    runs = [True]
    follower = Follower(Still(), lambda: runs[0])
    assert follower.look() == set()
    runs[0] = False
    assert follower.look() == {"all"}
    assert follower.look() == set()


# -- what can be done


@pytest.mark.parametrize(
    ("action", "fields", "words"),
    [
        ("pause", {"study": "digits"}, "digits is complete already"),
        ("cancel", {"study": "nobody"}, "there is no study 'nobody'"),
        ("weight", {"study": "digits", "weight": "much", "priority": "0"}, "weight = 'much'"),
        ("weight", {"study": "digits", "weight": "1", "priority": "0.5"}, "priority = '0.5'"),
        ("extend", {"study": "digits", "by": ""}, "by = ''"),
        ("enqueue", {"study": "digits", "param.x": "?"}, "params['x'] = '?'"),
        ("enqueue", {"study": "digits", "param.activation": "2"}, "params['activation'] = '2'"),
        ("format", {}, "action = 'format'"),
    ],
)
def test_what_is_refused_is_said_in_words(opened, action, fields, words):
    status, said = opened.act(action, **fields)
    assert status == 422
    assert words in said


def test_a_study_that_is_sampled_beside_its_objective_has_no_form_that_enqueues(tmp_path, settings):
    plan = StrategySpec("full", max_epochs=None)
    spec = study_spec(sampler="optuna", contract="objective", strategy=plan, space=None)
    reader = make_study(tmp_path, spec, turns=0)
    study = reader.study("digits")
    forms = study_forms(study, spec_from_json(study.spec_json))
    assert re.findall(r"<button>(\w+)", forms) == ["pause", "cancel", "weight", "extend"]
    with pytest.raises(UsageError, match=r"call study\.enqueue_trial"):
        Control(settings, reader).enqueue("digits", {"x": 0.5})
    with pytest.raises(UsageError, match="weight = nan"):
        Control(settings, reader).set_weight("digits", math.nan, 0)


def test_a_form_that_is_too_long_is_refused(opened):
    origin = f"http://127.0.0.1:{opened.port}"
    assert opened.ask("/act", "POST", "a" * (2 << 20), Origin=origin)[0] == 413


def test_it_ends_when_told_though_pages_are_open(home):
    server = PageServer(home)
    server.enter()
    with server.connect("/events?seen=0") as stream:
        assert stream.readline() == b"retry: 1000\n"
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 130
    server.close()
