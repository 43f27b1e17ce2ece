"""Garbage: nothing that the ledger names, nothing that may yet be reported."""

import os
import time

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.broker import installation
from penstock.app.broker.installation import installation_key
from penstock.app.host.settings import load
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.app.server.services.code_files import needed_objects
from penstock.app.server.services.garbage import find
from penstock.base.errors import BackendError, UsageError
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.events import StudyWritten, TrialWritten
from penstock.scheduler.model.study import StrategySpec, StudyRecord, SuperNet
from penstock.scheduler.model.trial import Trial
from penstock.scheduler.model.writing import Writing
from penstock.tasks.objectives.objects import keep, value_of
from worlds.drive_world import spec


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    return settings


def aged(path, seconds, size=2000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def commit(settings, status, uri, contract="empty", **options):
    """A study that stands so, one of whose states is in the store."""
    ledger = SqlLedger.open(settings.ledger_url)
    over = None if status == "running" else 2.0
    trial = Trial("s-1-0000", "s-1", 0, (), 1.0)
    durables = [(trial.id, Parent(1, uri, "h"), 1.0)]
    record = StudyRecord(spec(contract=contract, **options), status, 1.0, over)
    ledger.commit(Batch(studies=[record], trials=[trial], durables=durables))
    ledger.close()


@pytest.mark.parametrize(
    ("status", "contract", "young_ones_too"),
    [
        ("running", "empty", False),
        ("complete", "empty", True),
        ("running", "ask", True),  # never closed: it has no checkpoints
    ],
)
def test_files_without_a_row_go_and_while_a_study_lasts_only_old_ones(
    settings, status, contract, young_ones_too
):
    root = installation.checkpoints(settings.store_url, installation_key(settings))
    folder = type(settings.home)(root.removeprefix("file://"))
    named, old, young, fresh = (folder / f"{letter * 64}.pt" for letter in "abcd")
    for path, age in ((named, 1e6), (old, 1e6), (young, 3600.0), (fresh, 0.0)):
        aged(path, age)
    aged(folder / "notes.txt", 1e6)
    commit(settings, status, named.as_uri(), contract)
    expected = [old, young] if young_ones_too else [old]
    found = list(find(settings))
    assert [(each.name, each.size) for each in found] == [(p.as_uri(), 2000) for p in expected]
    for each in found:
        each.remove()
    assert not list(find(settings))
    assert named.exists()
    assert fresh.exists()
    assert (folder / "notes.txt").exists()


def test_objects_go_that_are_no_attribute_any_more(settings):
    root = installation.checkpoints(settings.store_url, installation_key(settings))
    texts = [keep(root, {each}) for each in range(4)]
    now, before, of_study, of_none = (value_of(text).digest for text in texts)
    commit(settings, "complete", "u", contract="ask")
    events = [
        TrialWritten(at=1.0, trial="s-1-0000", writing=Writing(user_attrs=(("m", texts[1]),))),
        TrialWritten(at=1.0, trial="s-1-0000", writing=Writing(user_attrs=(("m", texts[0]),))),
        StudyWritten(at=1.0, study="s-1", user_attrs=(("best", texts[2]),)),
    ]
    ledger = SqlLedger.open(settings.ledger_url)
    ledger.commit(Batch(events=[*enumerate(events, 1)]))
    ledger.close()
    assert needed_objects(Reader(settings.ledger_url)) == {now, of_study}
    for file in type(settings.home)(root.removeprefix("file://")).glob("objects/*"):
        os.utime(file, (time.time() - 1e6,) * 2)
    found = {each.name.rpartition("/")[2] for each in find(settings)}
    assert found == {before, of_none}


def test_the_state_of_a_super_net_is_needed_by_the_study_of_its_candidates(settings):
    root = installation.checkpoints(settings.store_url, installation_key(settings))
    folder = type(settings.home)(root.removeprefix("file://"))
    needed, other = (aged(folder / f"{letter * 64}.pt", 1e6) for letter in "ab")
    candidates = StrategySpec(supernet=SuperNet("trial 0", needed.as_uri(), "h", 20))
    commit(settings, "complete", "u", strategy=candidates)
    assert [each.name for each in find(settings)] == [other.as_uri()]
    both = [needed.as_uri(), other.as_uri()]
    assert Reader(settings.ledger_url).named(both) == {needed.as_uri()}


def test_a_reader_that_knows_of_super_nets_hears_of_new_ones(tmp_path):
    def candidates(name):
        of = SuperNet("trial 0", f"file:///{name}", name, 20)
        strategy = StrategySpec("full", max_epochs=1, supernet=of)
        return study_spec(name, 1, id=f"{name}-1", strategy=strategy)

    reader = make_study(tmp_path, study_spec("plain", 1, id="plain-1"))
    uris = ["file:///a", "file:///b"]
    assert reader.named(uris) == set()
    make_study(tmp_path, candidates("a"))
    assert reader.named(uris) == {"file:///a"}
    make_study(tmp_path, study_spec("none", 1, id="none-1"), candidates("b"))
    assert reader.named(uris) == {*uris}
    assert set(reader.supernets()) == {"a-1", "b-1"}


def test_studies_are_not_searched_again_while_there_are_no_new_ones(tmp_path, monkeypatch):
    reader = make_study(tmp_path, study_spec("plain", 1, id="plain-1"))
    reader.named(["file:///a"])
    asked = []
    rows = reader._rows
    monkeypatch.setattr(reader, "_rows", lambda query: asked.append(str(query)) or rows(query))
    reader.named(["file:///a"])
    assert asked
    assert not [query for query in asked if "FROM study" in query]


def test_a_link_that_user_code_put_beside_the_logs_is_not_followed(settings, tmp_path):
    commit(settings, "complete", "file:///none")
    theirs = aged(tmp_path / "theirs", 1e7)
    (settings.logs / "link.log").symlink_to(theirs)
    (settings.logs / "loop.log").symlink_to("loop.log")
    assert not list(find(settings))


def test_logs_that_nobody_writes_to_are_emptied_and_stay_open_for_who_may(settings):
    commit(settings, "complete", "u")
    settings = load(home=settings.home, log_age=0.5)
    quiet = aged(settings.logs / "trainer-a.log", 43_200 + 60)
    busy = aged(settings.logs / "trainer-b.log", 43_200 - 60)
    with quiet.open("ab") as writer:
        [found] = find(settings)
        found.remove()
        writer.write(b"a word")
    assert quiet.read_bytes() == b"a word"
    assert busy.stat().st_size == 2000


def test_where_nothing_has_run_nothing_is_made(settings):
    with pytest.raises(BackendError, match="nothing has run here"):
        list(find(settings))
    assert not (settings.home / "key").exists()


@pytest.mark.parametrize("what", [b"", b"\n", b"no key", b"\xff\xfe", b"abc", b"\x00"])
def test_a_damaged_key_is_refused_by_the_name_of_its_file(settings, what):
    settings.ensure_home()
    file = settings.home / "key"
    file.write_bytes(what)
    with pytest.raises(UsageError, match=f"{file} is damaged.*remove it"):
        installation_key(settings)
    file.unlink()
    assert installation_key(settings) == installation_key(settings) != b""
