"""``penstock memory``: estimates, measurements, the margin between them, and what is not known."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from ledgers.ledger_batches import SPEC, epoch_batch, first_batch, trials
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.show.stories.sentences import sentence
from penstock.base.footprint import Footprint
from penstock.extensions.memory.events import FootprintReported
from penstock.extensions.memory.margin import OTHERS, RECURRENT
from penstock.extensions.memory.resident import LOADED
from penstock.extensions.memory.show import memory_facts, memory_of, memory_view
from rich.console import Console

MIB = 1 << 20


@pytest.fixture
def ledger_url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def report(of, size, **fields):
    footprint = Footprint(size * MIB // 4, size * MIB - size * MIB // 4, size * MIB)
    fields = {"measured": False, **fields}
    return FootprintReported(
        at=2.0, trial=trials(4)[0].id, fence=1, of=of, footprint=footprint, **fields
    )


def words(found):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(memory_view(found))
    return console.export_text()


def studied(url, *reports, process=0):
    ledger = SqlLedger.open(url)
    ledger.commit(first_batch(4))
    epoch = epoch_batch(1, first_seq=2, epoch=1, with_trials=True)
    ((seq, reported),) = epoch.events
    ledger.commit(replace(epoch, events=[(seq, replace(reported, memory=process))]))
    batch = replace(first_batch(0), studies=[], trials=[])
    ledger.commit(replace(batch, events=[(3 + n, each) for n, each in enumerate(reports)]))
    ledger.close()
    reader = Reader(url)
    return memory_of(reader, reader.study(SPEC.id))


def test_a_measured_trial_needs_what_it_was_measured_and_another_its_estimate_with_the_margin(
    ledger_url,
):
    first, second, third, _ = (each.id for each in trials(4))
    found = studied(
        ledger_url,
        report(first, 100),
        report(first, 110, measured=True),
        report(second, 200),
        report(third, 0, failed="aten.nonzero.default"),
    )
    one, two, three, four = found.trials
    assert one.error == pytest.approx(0.10)
    assert one.needs == pytest.approx(110 * MIB * 1.05, rel=1e-6)
    assert (found.errors, found.margin) == (1, OTHERS)
    assert two.needs == pytest.approx(200 * MIB * (1 + OTHERS), rel=1e-6)
    assert (three.estimate, three.needs, three.failed) == (None, None, "aten.nonzero.default")
    assert (four.estimate, four.measured, four.needs) == (None, None, None)
    told = words(found)
    assert "the margin of an estimate is 15%, from 1 earlier estimate" in told
    assert "; the worst estimate here was off by +10.0%" in told
    assert "packed by it" in told.replace("\n", " ")
    for word in ("100 MiB", "110 MiB", "+10.0%", "230 MiB", "aten.nonzero.default"):
        assert word in told
    facts = json.loads(json.dumps(memory_facts(found)))
    assert facts["trials"][0]["measured"]["reserved"] == 110 * MIB


def test_the_process_of_one_that_has_not_run_is_expected_to_grow_as_others_did(ledger_url):
    first, second, *_ = (each.id for each in trials(4))
    found = studied(
        ledger_url,
        report(first, 100, measured=True, base=150 * MIB),
        report(second, 200),
        process=150 * MIB + LOADED + 220 * MIB,
    )
    one, two, three, _ = found.trials
    assert one.process == 370 * MIB + LOADED
    assert two.expected == 150 * MIB + LOADED + 440 * MIB
    assert three.expected is None
    assert "about 632 MiB" in words(found)


def test_recurrent_models_begin_with_a_wider_margin(ledger_url):
    found = studied(ledger_url, report(trials(4)[0].id, 100, recurrent=True))
    assert found.margin == RECURRENT
    assert "50%, assumed" in words(found)


def test_where_nothing_is_known_it_is_said_why(ledger_url):
    assert "at most 1 % of their training time" in words(studied(ledger_url))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            report("s-0007", 100),
            "the memory that trial 7 needs was estimated: 100 MiB at the peak, 25",
        ),
        (
            report("s-0007", 2048, measured=True),
            "measured: 2 GiB at the peak, 512 MiB between steps",
        ),
        (report("s-0007", 0, failed="no"), "trial 7 needs could not be estimated: no"),
    ],
)
def test_a_trials_story_tells_it(event, told):
    assert told in sentence(event, "accuracy", {}, {})
