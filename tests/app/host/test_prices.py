"""The prices of devices, as an installation sets them."""

from __future__ import annotations

import pytest
from penstock import UsageError
from penstock.app.host.settings import load


def test_prices_are_by_kind_of_device(monkeypatch, tmp_path):
    assert load(home=tmp_path).price_list == ()
    monkeypatch.setenv("PENSTOCK_PRICES", "cpu=0.04, cuda=2.5")
    settings = load(home=tmp_path)
    assert settings.price_list == (("cpu", 0.04), ("cuda", 2.5))
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert load() == settings


@pytest.mark.parametrize(
    "text", ["cpu", "cpu=", "cpu=-1", "cpu=inf", "cpu=nan", "tpu=1", "cpu=1,cpu=2", "cpu=1,", "=1"]
)
def test_prices_that_cannot_be_are_refused(monkeypatch, text):
    monkeypatch.setenv("PENSTOCK_PRICES", text)
    with pytest.raises(UsageError, match=r"PENSTOCK_PRICES = .* is refused: allowed is KIND=PRICE"):
        load()
