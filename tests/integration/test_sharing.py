"""Studies side by side on real workers: weights, then priorities, and what is refused."""

from __future__ import annotations

import json

import pytest
from penstock import Float, FullBudget, Share, UsageError, create_study
from user_code.users_trainables import Paced

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_studies_share_real_devices_by_weight_and_then_by_priority(site, tmp_path):
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [0.15], "until": [str(tmp_path / "go")]}
    kind = {"metric": "loss", "sampler": "random", "strategy": FullBudget(2)}
    # Loading torch takes longer than all the rest: who waited for it meanwhile would be owed that.
    warm = create_study(study_name="warm", **kind)
    warm.optimize(Paced, space, 2, show_progress=False)
    heavy = create_study(study_name="heavy", share=Share(weight=3.0), **kind)
    light = create_study(study_name="light", **kind)
    light.submit(Paced, space, 40)
    heavy.submit(Paced, space, 40)
    rows = site.reader.epochs
    site.until(lambda: len(rows(heavy.id)) >= 6, "both run")
    before = len(rows(light.id)), len(rows(heavy.id))
    site.until(lambda: len(rows(heavy.id)) >= before[1] + 54, "the heavy study goes on")
    had = len(rows(heavy.id)) - before[1], len(rows(light.id)) - before[0]
    # 3, give or take a trial of the light study at either end: a slot changes hands where one ends.
    print(f"epochs of the heavy and the light study: {had}")
    assert 2.5 < had[0] / had[1] < 3.75, had
    assert "0.001" in site.penstock("weight", "light", "0", status=2)
    assert "priority 1" in site.penstock("weight", "light", "--priority", "1")
    begun = len(rows(heavy.id)), len(rows(light.id))
    site.until(lambda: len(rows(light.id)) >= begun[1] + 30, "the light study goes first")
    assert len(rows(heavy.id)) - begun[0] <= 8, "the lower priority ran beside work of the higher"
    for study in (heavy, light):
        study.cancel()
    facts = json.loads(site.penstock("status", "light", "--json"))
    assert facts["response_seconds"] > 0
    assert facts["priority"] == 1
    assert facts["usage"]["share"] > 0.3
    assert "idle:" in site.penstock("status", "heavy")


@pytest.mark.parametrize(("field", "value"), [("weight", 0), ("weight", -1), ("priority", 0.5)])
def test_what_is_no_weight_or_priority_is_refused_by_name(field, value):
    with pytest.raises(UsageError, match=rf"share\.{field} = {value}"):
        create_study(metric="loss", share=Share(**{field: value}))
