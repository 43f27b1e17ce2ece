"""The page as a desk, in headless Chromium: sorted, filtered, compared, branched by a person."""

import pytest
from ledgers.study_ledger import make_study, start_study, study_spec
from machines.browser import browser_in
from penstock.app.ledger.reader import Reader
from penstock.scheduler.model.study import StrategySpec
from servers.page_server import PageServer

PHONE, DESK = (390, 844), (1280, 900)
NUMBERS = "[...document.querySelectorAll('#table tbody tr')].map(row => +row.cells[0].innerText)"
SORTED = "document.querySelector('#table th[aria-sort]')"
BOX = "document.querySelector('#table input[value=\"{}\"]')"


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
def home(tmp_path_factory):
    """The state folder of a study that is over; a trial of it failed."""
    folder = tmp_path_factory.mktemp("home")
    make_study(folder, study_spec(n_trials=9), fails=(3,))
    return folder


@pytest.fixture(scope="module")
def server(home):
    server = PageServer(home)
    server.enter()
    yield server
    server.close()


@pytest.fixture
def going(tab, tmp_path):
    """The page of a study of which three trials have begun; call it to have the study end."""
    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    server = PageServer(tmp_path)

    def to_the_end():
        while runner.engine.state.studies:
            runner.turn(1.0)

    try:
        while len(runner.engine.state.trials) < 3:
            runner.turn(1.0)
        tab.open(server.url)
        tab.open(server.at("/study?id=digits"))
        yield to_the_end
    finally:
        server.close()
        ledger.close()


def header(title):
    """The link in the head of a column."""
    return f"[...document.querySelectorAll('#table th a')].find(a => a.innerText === '{title}')"


def press(tab, expression):
    """Press Enter on an element, as with a keyboard."""
    tab.value(f"{expression}.focus()")
    tab.key("Enter", windowsVirtualKeyCode=13, text="\r")


def write(tab, text):
    """Type a filter where nothing or another one was."""
    tab.value("document.querySelector('#search [type=search]').select()")
    tab.value("document.querySelector('#search [type=search]').focus()")
    tab.send("Input.insertText", text=text)


def test_a_table_is_sorted_by_a_click_and_by_the_keyboard_and_the_address_says_so(
    tab, server, home
):
    tab.open(server.url)
    tab.open(server.at("/study?id=digits"))
    by_result = tab.value(NUMBERS)
    assert sorted(by_result) == list(range(9))
    tab.value(f"{header('Trial')}.click()")
    tab.until(f"{SORTED}?.innerText === 'Trial' && {SORTED}.ariaSort === 'ascending'")
    assert tab.value(NUMBERS) == list(range(9))
    press(tab, header("Trial"))
    tab.until(f"{SORTED}?.ariaSort === 'descending'")
    assert tab.value(NUMBERS) == list(range(9))[::-1]
    assert tab.value(f"document.activeElement === {header('Trial')}"), "it is still there"
    press(tab, header("lr"))
    tab.until(f"{SORTED}?.innerText === 'lr'")
    rows = tab.value(NUMBERS)
    trials = Reader(f"sqlite:///{home / 'ledger.db'}").trials("digits-1a2b")
    assert rows == [t.number for t in sorted(trials, key=lambda t: t.params["lr"])]
    assert tab.value("location.search") == "?id=digits-1a2b&order=lr"
    tab.open(str(tab.value("location.href")))
    assert tab.value(NUMBERS) == rows
    tab.value("history.back()")
    tab.until(f"{SORTED}?.ariaSort === 'descending'")
    tab.value("[...document.querySelectorAll('.choices a')][0].click()")
    tab.until(f"!{SORTED}")
    assert tab.value(NUMBERS) == by_result


def test_a_table_is_filtered_as_a_person_types_and_wrong_words_are_said(tab, server):
    tab.open(server.url)
    tab.open(server.at("/study?id=digits&order=Trial"))
    write(tab, "state:failed")
    tab.until(f"{NUMBERS}.join() === '3'")
    assert tab.value("new URLSearchParams(location.search).get('filter')") == "state:failed"
    write(tab, "trial>=2 trial<5")
    tab.until(f"{NUMBERS}.join() === '2,3,4'")
    assert tab.value("document.activeElement === document.querySelector('#search [type=search]')")
    write(tab, "<i>=3")
    tab.until("document.querySelector('#table .message')")
    assert "no column is called <i; there are: Trial, State" in tab.text()
    tab.value("[...document.querySelectorAll('.choices a')][1].click()")
    tab.until(f"{NUMBERS}.length === 9")
    assert tab.value("document.querySelector('#search [type=search]').value") == ""


def test_order_filter_and_choice_outlive_what_happens_meanwhile(tab, going):
    tab.value(f"{header('Trial')}.click()")
    tab.until(f"{SORTED}?.innerText === 'Trial'")
    write(tab, "trial<4")
    tab.until("location.search.includes('filter')")
    tab.value(f"{BOX.format(1)}.click()")
    going()
    tab.until("document.querySelector('#progress .complete')")
    tab.until(f"{NUMBERS}.join() === '0,1,2,3'")
    assert tab.value(f"{BOX.format(1)}.checked")
    assert tab.value(f"{SORTED}.innerText") == "Trial"


#: A reader who sorts each time that the page is asked for, while its answer is on the way.
SORTS = """(() => {
  const plain = window.fetch;
  window.sorts = 0;
  window.fetch = async (address, ...more) => {
    const answer = await plain(address, ...more);
    if (!String(address).includes("/study?")) return answer;
    const title = ["lr", "Trial"][window.sorts++ % 2];
    [...document.querySelectorAll("#table th a")].find(a => a.innerText === title).click();
    return answer;
  };
})()"""


def test_the_page_goes_on_while_its_reader_sorts_all_the_time(tab, going):
    tab.value(SORTS)
    going()
    tab.until("document.querySelector('#progress .complete')")
    tab.until(f"{NUMBERS}.length === 9 && {SORTED}")
    order = tab.value("new URLSearchParams(location.search).get('order')")
    assert tab.value("sorts") >= 1
    tab.until(f"{SORTED}.innerText === '{order.removeprefix('-')}'")


def test_chosen_trials_are_compared_and_what_they_share_is_left_out(tab, server):
    tab.open(server.url)
    tab.open(server.at("/study?id=digits"))
    write(tab, "trial<=3")
    tab.until(f"{NUMBERS}.length === 4")
    tab.value(f"{BOX.format(0)}.click()")
    write(tab, "trial>1")
    tab.until(f"{NUMBERS}.length === 7")
    tab.value(f"{BOX.format(2)}.focus()")
    tab.key(" ", windowsVirtualKeyCode=32, text=" ")
    tab.value(f"{BOX.format(3)}.click()")
    assert tab.value("new URLSearchParams(location.search).get('chosen')") == "0,2,3"
    press(tab, "document.querySelector('form.compare button')")
    tab.until("location.pathname.endsWith('/compare')")
    tab.until("document.querySelectorAll('#curves .scatterlayer .trace').length === 2")
    assert tab.value("document.querySelector('#stands thead').innerText").split()[1::2] == [*"023"]
    differs = tab.value("document.querySelector('#differs').innerText")
    assert {"x", "lr"} <= set(differs.split())
    stands = tab.value("document.querySelector('#stands').innerText")
    assert "failed (exception): ValueError: <b>no</b>" in stands
    colours = tab.value(
        "document.querySelector('#curves .chart').data.map(trace => trace.line.color)"
    )
    assert len(set(colours)) == 2
    tab.value("document.querySelector('#others a').click()")
    tab.until("location.pathname.endsWith('/study')")
    tab.until(f"{BOX.format(2)}?.checked && !{BOX.format(1)}?.checked")


def test_without_scripts_a_table_is_sorted_filtered_and_compared_as_well(server):
    text = server.page("/study?id=digits&order=-Trial&filter=trial%3C3&chosen=7")
    assert text.index(">2</a>") < text.index(">1</a>") < text.index(">0</a>")
    assert '<input type="hidden" name="n" value="7">' in text, "it is chosen, and on no row"
    compared = server.page("/compare?id=digits&n=7&n=2")
    assert "trial 7" in compared
    assert "trial 2" in compared


def test_who_has_chosen_nothing_is_told_how(server):
    assert "no trial is chosen: tick some" in server.page("/compare?id=digits")


def click_epoch(tab, epoch):
    """Click a point of the curve, as with a mouse."""
    tab.until("document.querySelectorAll('#curves .points path').length")
    place = f"document.querySelectorAll('#curves .points path')[{epoch - 1}]"
    tab.value(f"{place}.scrollIntoView({{block: 'center'}})")
    box = tab.value(
        f"(box => [box.x + box.width / 2, box.y + box.height / 2])({place}.getBoundingClientRect())"
    )
    for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
        given = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1, "buttons": buttons}
        tab.send("Input.dispatchMouseEvent", type=kind, **given)
        if kind == "mouseMoved":
            tab.until("document.querySelector('#curves .hoverlayer *')")


@pytest.mark.extension("branches")
def test_a_click_on_the_curve_chooses_an_epoch_and_the_cost_is_said_before_anything_is_sent(
    tab, server, home
):
    reader = Reader(f"sqlite:///{home / 'ledger.db'}")
    trial = max(reader.trials("digits-1a2b"), key=lambda trial: trial.epoch)
    tab.open(server.url)
    tab.open(server.at(f"/trial?id=digits&n={trial.number}"))
    click_epoch(tab, 2)
    tab.until("document.querySelector('#branch [name=at]').value === '2'")
    tab.until("document.querySelector('#curves .chart').layout.shapes?.[0].x0 === '2'")
    tab.until(
        "document.querySelector('#branch output').innerText.includes('give a value that differs')"
    )
    assert tab.value("document.querySelector('#branch output').className") == "refused"
    tab.complaints.clear()  # the browser itself tells of an answer 422
    tab.value("document.querySelector('#branch [name=\"param.x\"]').select()")
    tab.send("Input.insertText", text="0.5")
    tab.until("document.querySelector('#branch output').className === 'done'")
    said = tab.value("document.querySelector('#branch output').innerText")
    assert said.startswith("It trains 7 epochs (3 to 9)")
    assert len(reader.trials("digits-1a2b")) == 9, "nothing was sent"


def test_the_list_shows_progress_a_small_curve_and_the_begin(tab, server):
    tab.open(server.url)
    tab.until("document.querySelector('#studies tbody tr')")
    assert tab.value("document.querySelector('#studies progress').value") > 0
    assert "UTC" in tab.value("document.querySelector('#studies time').title")
    box = tab.value(
        "(box => [box.width, box.height])(document.querySelector('.spark polyline').getBBox())"
    )
    assert 0 < box[0] <= 96
    assert 0 < box[1] <= 22
    assert tab.value("document.querySelector('.spark').ariaLabel").endswith("over 8 trials")


LINES = "document.querySelectorAll('#parallel polyline').length"


def test_trials_are_lines_across_their_parameters_and_follow_the_filter(tab, server):
    tab.open(server.url)
    tab.open(server.at("/study?id=digits"))
    assert tab.value(LINES) == 8, "one failed before its first result"
    words = tab.value("[...document.querySelectorAll('#parallel text.h')].map(e => e.textContent)")
    assert words == ["x", "lr", "activation", "accuracy"]
    assert "<i>tanh" in tab.value("document.querySelector('#parallel').textContent")
    assert tab.value("document.querySelectorAll('#parallel i:not(.legend i)').length") == 0
    write(tab, "trial<3")
    tab.until(f"{LINES} === 3")


def test_importances_are_worked_out_aside_and_come_to_the_open_page(tab, tmp_path):
    make_study(tmp_path, study_spec(n_trials=60, strategy=StrategySpec("full", max_epochs=2)))
    server = PageServer(tmp_path)
    try:
        tab.open(server.url)
        tab.open(server.at("/study?id=digits"))
        tab.until("document.querySelectorAll('#importances .bars path').length === 3")
        tab.until(
            "document.querySelector('#importances-words').innerText.includes('over 60 trials')"
        )
        assert "worked out" not in tab.value(
            "document.querySelector('#importances-words').innerText"
        )
    finally:
        server.close()


def test_the_newest_lines_of_a_log_come_to_the_open_page(tab, tmp_path):
    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    log = tmp_path / "logs" / "trainer-cpu.node.0.s0.log"
    log.parent.mkdir()
    mark = "2026-01-01T00:00:00.000Z {}| {}\n"
    trials = runner.engine.state.trials
    server = PageServer(tmp_path)
    try:
        while len(trials) < 2:
            runner.turn(1.0)
        first, second, *_ = trials
        log.write_text("".join(mark.format(first, f"line {n} <b>") for n in range(30)))
        tab.open(server.url)
        tab.open(server.at("/trial?id=digits&n=0"))
        text = "document.querySelector('#printed').innerText"
        tab.until(f"{text}.includes('line 29 <b>')")
        assert not tab.value(f"{text}.includes('line 9 <b>')"), "only the newest are shown"
        with log.open("a") as file:
            file.write(mark.format(second, "of another") + mark.format(first, "newest"))
        while runner.engine.state.studies:
            runner.turn(1.0)
        tab.until(f"{text}.includes('newest')")
        assert not tab.value(f"{text}.includes('of another')")
        tab.open(server.at("/study?id=digits"))
        assert tab.value(f"{text}.includes('1| of another')")
    finally:
        server.close()
        ledger.close()


@pytest.mark.parametrize(
    "path", ["compare?id=digits&n=1,2,4", "trial?id=digits&n=1", "memory?id=digits"]
)
def test_the_desk_fits_a_phone(tab, server, path):
    tab.open(server.url)
    tab.size(*PHONE)
    tab.open(server.at(f"/{path}"))
    tab.until("document.querySelector('main section')")
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")


def test_all_that_can_be_done_at_the_desk_is_reached_by_tab_and_is_seen(tab, server):
    tab.open(server.url)
    tab.open(server.at("/study?id=digits"))
    wanted = {"filter", "Trial", "lr", "best first", "compare the chosen trials"}
    reached = set()
    tab.value("document.querySelector('#trials').scrollIntoView()")
    for _ in range(120):
        tab.key("Tab", windowsVirtualKeyCode=9)
        at = "document.activeElement"
        if tab.value(f"{at} === document.body"):
            break
        reached.add(tab.value(f"{at}.innerText || {at}.name"))
        assert tab.value(
            f"getComputedStyle({at}).outlineStyle !== 'none' || {at}.matches('.modebar *')"
        )
    assert wanted <= reached
    assert "n" in reached, "the boxes"
