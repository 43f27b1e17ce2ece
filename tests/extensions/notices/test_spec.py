"""Addresses as users give them, and at the scheduler's door; what of them may be shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from penstock import UsageError, create_study
from penstock.app.host.settings import load
from penstock.app.ledger.codec import spec_to_json
from penstock.app.server.runner import commands
from penstock.app.spec.build import make_plan
from penstock.app.spec.changes import differences
from penstock.extensions.notices import spec as door
from penstock.extensions.notices.addresses import resolve, shown
from worlds.desk import command
from worlds.drive_world import World, spec

SECRET = "T1JJ3T3L2"
SLACK = f"slack://{SECRET}/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (SLACK, "slack://…"),
        ("https://hooks.slack.com/services/T/B/X", "https://hooks.slack.com"),
        ("json://127.0.0.1:8080/a/secret", "json://127.0.0.1"),
        ("json://user:se@cret@host/", "json://…"),
        ("json://user:se/cret@host/", "json://…"),
        ("mailto://user:secret@example.org", "mailto://…"),
        ("$SLACK", "$SLACK"),
        ("$PENSTOCK_NOTIFY/3", "$PENSTOCK_NOTIFY"),
        ("secret", "an address"),
    ],
)
def test_of_an_address_the_scheme_is_shown_and_the_host_where_that_is_no_secret(address, words):
    assert shown(address) == words


def test_a_variable_has_an_address_or_several_with_spaces_between_them():
    variables = {"SLACK": SLACK, "PENSTOCK_NOTIFY": f"json://a {SLACK}"}
    assert resolve(SLACK, {}) == SLACK
    assert resolve("$SLACK", variables) == SLACK
    assert resolve("$PENSTOCK_NOTIFY/1", variables) == SLACK
    assert resolve("$PENSTOCK_NOTIFY/2", variables) is None
    assert resolve("$MAIL", variables) is None


REFUSED = [
    (SECRET, "notify = an address is refused: allowed is an address as Apprise has them"),
    ([SLACK, 3], "notify = int is refused"),
    (f"slack://{SECRET} /x", "notify = slack://… is refused"),
    ([SLACK] * 21, "a list of up to 20"),
    ("$", "notify = $ is refused"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_is_no_address_is_refused_where_it_is_given_and_not_shown(given, words):
    with pytest.raises(UsageError) as refusal:
        make_plan(metric="loss", notify=given)
    assert words in str(refusal.value)
    assert SECRET not in str(refusal.value)


def test_an_address_that_apprise_cannot_read_is_refused_before_anything_starts(
    settings, caplog, capfd
):
    for address in (f"slack://{SECRET}", f"nowhere://{SECRET}", f"tgram://{SECRET}"):
        with pytest.raises(UsageError, match="Apprise cannot read this one") as refusal:
            create_study(notify=address)
        assert SECRET not in str(refusal.value)
    with pytest.raises(UsageError, match="Apprise cannot read this one"):
        create_study(notify=[SLACK, "slack://x"])
    assert SECRET not in f"{caplog.text} {capfd.readouterr()}"
    assert create_study(notify=[SLACK, "$NOT_SET_HERE"])._handle.plan.notify[0] == SLACK


def test_without_apprise_the_refusal_says_what_to_type(settings, monkeypatch):
    monkeypatch.setattr(door, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"notify needs Apprise, which this Python does not .*pip"):
        create_study(notify=SLACK)
    create_study()


def submit(study):
    world = World()
    made = command(1, "submit", study=json.loads(spec_to_json(study))).body
    return commands.to_event(made, world.engine, 1.0, lambda name: None)


def test_the_door_refuses_variables_that_are_not_set_where_the_scheduler_runs(monkeypatch):
    study = spec(space=(), notify=("$TEAM",))
    with pytest.raises(UsageError, match=r"notify = \$TEAM is refused: allowed is a variable"):
        submit(study)
    monkeypatch.setenv("TEAM", SLACK)
    assert submit(study).study.notify == ("$TEAM",)
    monkeypatch.setenv("TEAM", SECRET)
    with pytest.raises(UsageError) as refusal:
        submit(study)
    assert SECRET not in str(refusal.value)
    with pytest.raises(UsageError, match="notify = an address"):
        submit(replace(study, notify=(SECRET,)))


def test_addresses_are_not_in_the_words_for_a_study():
    study = spec(notify=(SLACK,))
    assert SECRET not in repr(study)
    assert SECRET not in repr(make_plan(metric="loss", notify=SLACK))
    assert differences(study, replace(study, notify=())) == []


def test_the_addresses_of_an_installation_are_never_shown(monkeypatch):
    monkeypatch.setenv("PENSTOCK_NOTIFY", f"json://a  {SLACK}")
    settings = load()
    assert settings.notify_list == ["json://a", SLACK]
    assert SECRET not in repr(settings)
    monkeypatch.setenv("PENSTOCK_NOTIFY", SECRET)
    with pytest.raises(UsageError, match=r"PENSTOCK_NOTIFY = '\*\*\*' is refused") as refusal:
        load()
    assert SECRET not in str(refusal.value)
