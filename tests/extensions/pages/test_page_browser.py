"""The pages of ``penstock ui`` in headless Chromium, used as a person uses them."""

import pytest
from ledgers.study_ledger import WithSizes, make_study, start_study, study_spec
from machines.browser import browser_in
from penstock.app.ledger.reader import Reader
from penstock.extensions.report.figures import pareto
from penstock.scheduler.model.study import Objective, StrategySpec
from servers.page_server import PageServer

NAME = '"><img src=x onerror=alert(1)><script>alert(1)</script>'
PHONE, DESK = (390, 844), (1280, 900)
CURVES = "document.querySelectorAll('#curves .scatterlayer .trace').length"
DOTS = "document.querySelectorAll('#pareto .points path').length"
FIELD = "document.querySelector('[name=\"param.x\"]')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = browser_in(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def tab(browser):
    """The browser; a page that complains of anything fails the test."""
    browser.leave()
    browser.complaints.clear()
    browser.size(*DESK)
    yield browser
    assert browser.complaints == []


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The pages of a study that is over and of one whose name and metric are markup."""
    home = tmp_path_factory.mktemp("home")
    hostile = study_spec(NAME, n_trials=3, id="hostile-1a2b", metric="<img src=x onerror=alert(2)>")
    make_study(home, study_spec(n_trials=9), hostile, fails=(3,))
    server = PageServer(home)
    yield server
    server.close()


def test_a_person_opens_the_address_and_follows_links_to_a_trials_story(tab, server):
    tab.open(server.url)
    assert tab.value("location.search") == "", "the token is no longer in the address"
    tab.value(
        "[...document.querySelectorAll('main a')].find(a => a.innerText === 'digits').click()"
    )
    tab.until(f"location.pathname.endsWith('/study') && {CURVES}")
    assert tab.value(CURVES) == 8, "one of nine failed before its first epoch"
    assert tab.value("getComputedStyle(document.querySelector('#curves .main-svg')).position") == (
        "absolute"
    ), "the rules that plotly.js adds are in force"
    assert "complete" in tab.text()
    tab.value("[...document.querySelectorAll('#table a')].find(a => a.innerText === '3').click()")
    tab.until("location.pathname.endsWith('/trial') && document.querySelector('.story')")
    assert "ValueError: <b>no</b>" in tab.text()
    tab.value("document.querySelector('.story summary').click()")
    assert "Traceback (most recent call last)" in tab.text()


def test_a_page_grows_with_its_study_and_keeps_what_its_reader_does(tab, tmp_path):
    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    reader = Reader(f"sqlite:///{tmp_path / 'ledger.db'}")
    server = PageServer(tmp_path)
    try:
        tab.open(server.url)
        tab.open(server.at("/study?id=digits"))
        assert tab.value(CURVES) == 0
        assert "Nothing to draw yet." in tab.text()
        tab.value("document.querySelector('#forms summary').click()")
        tab.value(f"{FIELD}.focus()")
        tab.send("Input.insertText", text="0.25")
        for trained in (1, 3, 5):
            while len({row.trial for row in reader.epochs("digits-1a2b")}) < trained:
                runner.turn(1.0)
            assert runner.engine.state.studies, "it still runs"
            tab.until(f"{CURVES} >= {trained}")
        while runner.engine.state.studies:
            runner.turn(1.0)
        tab.until("document.querySelector('#progress .status').innerText === 'complete'")
        # Its parts are drawn one after the other.
        tab.until(f"{CURVES} === 9")
        tab.until("document.querySelectorAll('#table tbody tr').length === 9")
        assert tab.value(f"{FIELD}.value") == "0.25"
        assert tab.value(f"document.activeElement === {FIELD}")
    finally:
        server.close()
        ledger.close()


#: Counts the pieces of an update, and those that the browser did in one go with another one: a
#: message that a piece sends has not come yet when the next one begins.
WATCHED = """(() => {
  const {port1, port2} = new MessageChannel();
  let busy = false;
  window.pieces = 0;
  window.together = 0;
  port1.onmessage = () => { busy = false; };
  const piece = () => { pieces++; if (busy) together++; busy = true; port2.postMessage(0); };
  const drawn = draw, replaced = Element.prototype.replaceChildren;
  window.draw = (...given) => { piece(); drawn(...given); };
  Element.prototype.replaceChildren = function (...nodes) {
    if (this.matches("[data-live]")) piece();
    replaced.apply(this, nodes);
  };
})()"""


def test_between_the_pieces_of_an_update_clicks_have_their_turn(tab, tmp_path):
    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    server = PageServer(tmp_path)
    try:
        tab.open(server.url)
        tab.open(server.at("/study?id=digits"))
        tab.value(WATCHED)
        while runner.engine.state.studies:
            runner.turn(1.0)
        tab.until(f"document.querySelector('#progress .complete') && {CURVES} === 9")
        tab.until("pieces >= 7")  # four parts at least, and three charts
        assert tab.value("together") == 0
    finally:
        server.close()
        ledger.close()


def test_the_front_of_several_objectives_is_the_reports_picture_and_grows_with_its_study(
    tab, tmp_path
):
    spec = study_spec(
        n_trials=12,
        strategy=StrategySpec("full", max_epochs=2),
        further=(Objective("size", "minimize"),),
    )
    runner, ledger = start_study(tmp_path, spec, devices=WithSizes)
    reader = Reader(f"sqlite:///{tmp_path / 'ledger.db'}")
    server = PageServer(tmp_path)
    try:
        tab.open(server.url)
        tab.open(server.at("/study?id=digits"))
        tab.until("document.querySelector('#pareto .none')")
        assert tab.value(DOTS) == 0
        while len({row.trial for row in reader.epochs("digits-1a2b")}) < 4:
            runner.turn(1.0)
        assert runner.engine.state.studies, "it still runs"
        tab.until(f"{DOTS} >= 4")
        while runner.engine.state.studies:
            runner.turn(1.0)
        tab.until(f"document.querySelector('#progress .complete') && {DOTS} === 12")
        study, trials = reader.study("digits-1a2b"), reader.trials("digits-1a2b")
        [line, dots, names] = pareto(study, trials)["data"]
        assert tab.value("document.querySelector('#pareto .xtitle').textContent") == (
            "accuracy (maximize)"
        )
        tab.until(f"document.querySelector('#pareto .chart').data[0].x.length === {len(line['x'])}")
        drawn = tab.value("document.querySelector('#pareto .chart').data.map(({x, y}) => ({x, y}))")
        assert drawn == [{"x": each["x"], "y": each["y"]} for each in (line, dots, names)]
        assert 1 < len(names["text"]) < 12, "one of them is beaten"
        assert tab.value("document.querySelectorAll('#pareto .textpoint').length") == len(
            names["x"]
        )
    finally:
        server.close()
        ledger.close()


def test_names_full_of_markup_are_read_and_do_nothing(tab, server):
    tab.open(server.url)
    assert NAME in tab.text()
    tab.open(server.at("/study?id=hostile-1a2b"))
    tab.until(CURVES)
    assert tab.value("document.querySelector('h1').innerText") == NAME
    assert tab.value("document.querySelectorAll('img').length") == 0
    assert "<img src=x onerror=alert(2)>" in tab.value(
        "document.querySelector('#curves .ytitle').textContent"
    )


@pytest.mark.parametrize("path", ["", "study?id=digits", "trial?id=digits&n=3", "devices", "plan"])
def test_a_page_fits_a_phone(tab, server, path):
    tab.open(server.url)
    tab.size(*PHONE)
    tab.open(server.at(f"/{path}"))
    tab.until("document.querySelector('nav')")
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("path", ["study?id=digits", "report?id=digits"])
def test_on_a_phone_tables_show_that_they_go_on_and_bars_are_no_mere_outline(tab, server, path):
    tab.open(server.url)
    tab.size(*PHONE)
    tab.open(server.at(f"/{path}"))
    tab.until("document.querySelector('.chart .main-svg')")
    table = "document.querySelector('.scroll')"
    assert tab.value(f"{table}.scrollWidth > {table}.clientWidth"), "it is cut"
    shown = tab.value(f"getComputedStyle({table}).backgroundAttachment")
    assert shown == "local, local, scroll, scroll", "shadows, covered at the table's ends"
    for begin in ("[0, 5]", '["2026-01-01 00:00:00.000", "2026-01-01 00:00:00.005"]'):
        bars = f"{{type: 'bar', base: {begin}, x: [1, 95]}}"
        assert tab.value(f"outlines({{data: [{bars}]}}, {PHONE[0]})({bars}).join()") == "0,1"


def test_a_page_is_used_with_the_keyboard_alone(tab, server):
    tab.open(server.url)
    tab.open(server.at("/"))
    tab.key("Tab", windowsVirtualKeyCode=9)
    assert tab.value("document.activeElement.innerText") == "Skip to the content"
    assert tab.value("document.activeElement.getBoundingClientRect().left >= 0"), "it is seen"
    tab.key("Enter", windowsVirtualKeyCode=13, text="\r")
    tab.until("location.hash === '#main'")
    for _ in range(9):
        tab.key("Tab", windowsVirtualKeyCode=9)
        if tab.value("document.activeElement.innerText") == "digits":
            break
    assert tab.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.key("Enter", windowsVirtualKeyCode=13, text="\r")
    tab.until("location.pathname.endsWith('/study')")


def test_a_page_is_dark_where_its_reader_wants_it(tab, server):
    tab.open(server.url)
    colours = []
    for dark in (False, True):
        tab.size(*DESK, dark=dark)
        colours.append(tab.value("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(246, 247, 249)", "rgb(15, 20, 26)"]


def test_what_was_refused_is_said_and_that_the_server_is_gone(tab, tmp_path):
    make_study(tmp_path, study_spec(n_trials=3))
    server = PageServer(tmp_path)
    try:
        tab.open(server.url)
        tab.open(server.at("/study?id=digits"))
        tab.value("document.querySelector('#forms [name=study]').value = '<i>nobody'")
        tab.value("document.querySelector('#forms button').click()")
        tab.until("document.getElementById('said').className === 'refused'")
        assert "there is no study '<i>nobody'" in tab.text()
        tab.complaints.clear()  # the browser itself tells of an answer 422
    finally:
        server.close()
    tab.until("document.getElementById('connection').innerText.startsWith('Not connected')")
    tab.complaints.clear()  # and of a server that is gone
