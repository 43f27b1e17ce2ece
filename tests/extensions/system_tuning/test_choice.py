"""The words on a study's configuration: on what it rests, and what it has saved."""

from dataclasses import replace

import pytest
from ledgers.ledger_batches import SPEC, epoch_batch, trials
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.extensions.system_tuning.asked.decisions import Known, OfOthers, Recalled
from penstock.extensions.system_tuning.choice import choice_of
from penstock.extensions.system_tuning.races.measured import Rehearsed, Window
from penstock.extensions.system_tuning.workloads import place_of
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import StudySubmitted
from penstock.scheduler.model.study import StudyRecord
from penstock.scheduler.state.state import DeviceRecord
from servers.page_server import PageServer

LAST = (("memory_format", "channels_last"),)
FIXED = replace(SPEC, system="tune", system_fixed=True)


def write(url, *events, spec=FIXED, config=LAST):
    """Write a ledger with a study whose only epoch took 70 s, after these events."""
    epoch = replace(epoch_batch(1, first_seq=1, epoch=1).epochs[0], system=config, seconds=70.0)
    device = Device(epoch.device, "n", "cpu", (0,), None, model="x")
    ledger = SqlLedger.open(url)
    ledger.commit(
        Batch(
            events=[*enumerate((StudySubmitted(at=1.0, study=spec), *events), 1)],
            studies=[StudyRecord(spec, "running", 1.0)],
            trials=trials(1, 1),
            epochs=[epoch],
            devices=[DeviceRecord(device, "i", "joined", 0.0)],
        )
    )
    ledger.close()


@pytest.fixture
def told(sqlite_url):
    """Return the choice of such a study."""

    def choice(*events, spec=FIXED, config=LAST):
        write(sqlite_url, *events, spec=spec, config=config)
        return choice_of(Reader(sqlite_url), spec)

    return choice


def recalled(*known, adopted=()):
    return Recalled(at=1.0, study=SPEC.id, known=known, adopted=adopted)


def here(spec=FIXED):
    return place_of(spec, Device("d", "n", "cpu", (0,), None, model="x"))


def test_what_an_earlier_study_measured_here_is_what_it_rests_on(told):
    found = told(recalled(Known(*here(), LAST, -0.3567, 0.05, 4, 2)))
    assert found.saved == pytest.approx(30.0, abs=0.01)
    assert "reused from 2 earlier studies, which measured it at 0.70" in found.words
    assert "saved about 30.0 s" in found.words
    assert "spent" not in found.words


def test_what_was_measured_on_another_machine_is_no_reason(told):
    found = told(recalled(Known(here()[0], "another machine", LAST, -0.3567, 0.05, 4, 2)))
    assert (found.ratio, found.saved, found.why) == (None, None, "as the study says")


def test_what_was_adopted_is_a_reason_only_where_a_study_reuses(told):
    adopted = ((*here(), LAST),)
    assert told(recalled(adopted=adopted)).why == "as the study says"


def test_a_study_that_reuses_says_that_its_configuration_was_adopted(told):
    spec = replace(FIXED, system="reuse")
    assert told(recalled(adopted=((*here(), LAST),)), spec=spec).why == "adopted for this code"


def test_other_workloads_that_agreed_are_counted(told):
    slot, machine = here()[0].partition("/")[2], here()[1]
    others = (OfOthers(slot, machine, LAST, -0.3, 0.2, 4, 3),)
    asked = replace(recalled(), others=others)
    found = told(asked, rehearsed(LAST, (LAST, 0.7), (LAST, 0.7)))
    assert "(it was faster for 3 of 4 other codes or versions)" in found.words


def test_workloads_of_other_machines_are_not_counted(told):
    others = (OfOthers(here()[0].partition("/")[2], "another", LAST, -0.3, 0.2, 4, 3),)
    found = told(replace(recalled(), others=others), rehearsed(LAST, (LAST, 0.7), (LAST, 0.7)))
    assert "other codes" not in found.words


def rehearsed(chosen, *windows):
    made = tuple(Window(config, ratio, 0.1) for config, ratio in windows)
    return Rehearsed(at=1.0, trial=trials(1)[0].id, fence=1, chosen=chosen, windows=made, spent=2.0)


def test_a_rehearsal_says_what_it_has_measured_and_cost(told):
    found = told(rehearsed(LAST, (LAST, 0.7)))
    assert found.why == "measured in a rehearsal at 0.70 of the default's time"
    assert found.words.endswith("saved about 30.0 s of 1 min 40 s in epochs, spent 2.0 s")


def test_the_default_says_what_was_slower(told):
    found = told(rehearsed((), (LAST, 1.2)), config=())
    assert found.saved is None
    assert "memory_format channels_last took 1.20 of its time" in found.why


def test_where_nothing_was_worth_measuring_it_says_so(told):
    assert told(rehearsed(()), config=()).why == "nothing was worth measuring"


def test_a_study_whose_trials_may_differ_has_no_choice(told):
    assert told(spec=replace(FIXED, system_fixed=False)) is None


def test_the_page_of_a_study_says_it(tmp_path):
    known = Known(*here(), LAST, -0.3567, 0.05, 4, 2)
    write(f"sqlite:///{tmp_path / 'ledger.db'}", recalled(known))
    server = PageServer(tmp_path)
    try:
        text = server.page(f"/study?id={SPEC.id}")
    finally:
        server.close()
    assert "Its trials use memory_format channels_last, reused from 2 earlier studies" in text
    assert "saved about 30.0 s" in text
