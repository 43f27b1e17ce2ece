"""Any request to ``penstock ui`` is answered, or refused in words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fuzz.fuzzing import ODD, fuzzed, in_time
from hypothesis import strategies as st
from ledgers.study_ledger import make_study, study_spec
from penstock.app.host.settings import load
from penstock.base.errors import PenstockError, UsageError
from penstock.extensions.pages.actions import carry_out
from penstock.extensions.pages.application import PAGES
from penstock.extensions.pages.frame import begun, ended
from penstock.extensions.pages.gate import Proxy
from penstock.extensions.pages.site import Site

ODD_TEXTS = st.sampled_from([each[:5000] for each in ODD]) | st.text()
NAMES = ("id", "n", "page", "state", "order")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    return Site(load(home=home), make_study(home, study_spec(n_trials=3)))


def test_a_page_is_shown_or_what_is_asked_for_is_refused(site):
    @fuzzed(
        name=st.sampled_from(sorted(PAGES)),
        query=st.dictionaries(st.sampled_from(NAMES), ODD_TEXTS | st.sampled_from(["digits", "1"])),
    )
    def shown_or_refused(name, query):
        with in_time():
            try:
                page = PAGES[name](site, query)
                text = begun(page, name, 0) + ended(page.draw())
            except PenstockError:
                return
        assert "<script>" not in text
        assert text.encode()

    shown_or_refused()


def test_a_form_is_understood_or_refused(site):
    """The request is noted and not carried out: no scheduler is started for it."""
    noted = []
    control = SimpleNamespace(
        set_weight=lambda *given: noted.append(given),
        extend=lambda *given: noted.append(given),
        enqueue=lambda *given: noted.append(given),
    )
    instead = SimpleNamespace(reader=site.reader, control=control, settings=site.settings)
    names = ("study", "weight", "priority", "by", "param.x", "param.activation", "param.", "x")

    @fuzzed(
        action=st.sampled_from(["weight", "extend", "enqueue", "delete", ""]),
        fields=st.dictionaries(
            st.sampled_from(names), ODD_TEXTS | st.sampled_from(["digits", "1"])
        ),
    )
    def understood_or_refused(action, fields):
        with in_time():
            try:
                carry_out(instead, {**fields, "action": action})
            except UsageError as error:
                assert str(error)

    understood_or_refused()
    assert noted


def test_a_proxys_address_is_understood_or_refused():
    @fuzzed(url=ODD_TEXTS | st.from_regex(r"https?://[a-z\[\]:@/?#.%0-9]{0,20}", fullmatch=True))
    def understood_or_refused(url):
        with in_time():
            try:
                proxy = Proxy.of(url)
            except UsageError:
                return
        assert proxy.origin.startswith(("http://", "https://"))
        assert not proxy.path.endswith("/")

    understood_or_refused()
