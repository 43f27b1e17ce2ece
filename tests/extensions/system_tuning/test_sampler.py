"""Configurations proposed by a model: new ones, by what was seen, always the same."""

from itertools import product

import pytest
from penstock.app.spec.build import make_plan
from penstock.app.spec.options import Resources, SystemTuning
from penstock.base.errors import UsageError
from penstock.extensions.system_tuning import server
from penstock.extensions.system_tuning.asked import sampler
from penstock.extensions.system_tuning.asked.decisions import AskConfigs
from penstock.extensions.system_tuning.asked.sampler import TOGETHER, propose
from worlds.drive_world import spec

CHOICES = (("threads", (1, 2, 4, 8)), ("memory_format", ("channels_last",)), ("compile", (True,)))
ALL = {
    tuple(sorted((name, value) for name, value in drawn if value is not None))
    for drawn in product(*([(name, each) for each in (None, *values)] for name, values in CHOICES))
}


def ask(seen=(), index=1, choices=CHOICES):
    return AskConfigs(
        id="c1", cause=1, workload="w", choices=choices, seen=tuple(seen), index=index
    )


def test_what_is_proposed_is_new_and_of_the_space():
    first = propose(ask())
    assert len({*first}) == TOGETHER
    assert {*first} <= ALL - {()}
    then = propose(ask([(config, -0.1) for config in first], index=2))
    assert then
    assert not {*first} & {*then}


def test_the_same_question_has_the_same_answer_and_another_one_another():
    assert propose(ask()) == propose(ask())
    assert propose(ask()) != propose(ask(index=2))


def test_what_was_fast_is_proposed_more_often_than_what_was_slow():
    # Of 9 seen, those of one thread were fast: what is proposed next should be of one thread.
    seen = [(c, -0.8 if dict(c).get("threads") == 1 else 0.5) for c in sorted(ALL - {()}, key=repr)]
    left = [(c, ratio) for c, ratio in seen if "compile" not in dict(c)]
    found = [config for i in range(20) for config in propose(ask(left, i))[:2]]
    assert sum(dict(config).get("threads") == 1 for config in found) > len(found) / 3


def test_a_space_that_is_used_up_is_answered_with_nothing():
    choices = (("threads", (1,)),)
    assert propose(ask(choices=choices)) == ((("threads", 1),),)
    assert propose(ask([((("threads", 1),), None)], choices=choices)) == ()


def test_a_model_that_raises_proposes_nothing_and_the_study_goes_on(monkeypatch, caplog):
    def broken(_):
        raise RuntimeError("no model today")

    monkeypatch.setattr(sampler, "propose", broken)
    answer = server.configs(ask(), 2.0)
    assert (answer.cause, answer.workload, answer.configs) == ("c1", "w", ())
    assert "no model today" in caplog.text


def plan(**fields):
    usual = {"direction": None, "metric": "loss", "sampler": "random"}
    return make_plan(**usual, **fields)


def test_a_study_says_how_its_system_parameters_are_probed():
    assert plan().system.probing == "race" == spec().probing
    assert plan(system=SystemTuning("tune", probing="grid")).system.probing == "grid"
    with pytest.raises(UsageError, match=r"system\.probing = 'greedy' .*race, bandit, bayesian"):
        plan(system=SystemTuning(probing="greedy"))


@pytest.mark.parametrize("given", [0, 2**29 - 1, 1e9, "1 GiB", True])
def test_a_memory_limit_that_no_trainer_can_keep_is_refused(given):
    with pytest.raises(UsageError, match=r"resources\.memory = .* whole number >= 536870912"):
        plan(resources=Resources(memory=given))
    with pytest.raises(UsageError, match=r"resources\.memory = 10+ is refused: .*, at most 922"):
        plan(resources=Resources(memory=10**30))
    assert plan(resources=Resources(memory=2**30)).resources.memory == 2**30
