"""Samplers after edits: they draw from the new ranges, and learn from earlier trials that fit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from penstock import Float, Int
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.optuna_bridge.study_view import with_assumed
from penstock.app.spec.conditions import parse_conditions
from penstock.app.spec.sampler_options import SAMPLERS
from penstock.app.spec.space import parse_space
from penstock.extensions.editing.changes import edited, form_of
from penstock.scheduler.model.study import Observation, StrategySpec
from penstock.scheduler.model.trial import Trial, TrialState
from worlds.drive_world import spec

SPACE = {"x": Float(-10, 10), "n": Int(1, 64, log=True), "act": ["relu", "tanh", "gelu"]}
GRID = {"x": Float(0.0, 1.0, step=0.25), "n": Int(1, 4), "act": ["relu", "tanh", "gelu"]}
EDITS = {
    "widened": ({"x": (-20, 30), "n": (1, 256)}, {}),
    "narrowed": ({"x": (2, 6), "act": ["tanh"]}, {}),
    "fixed": ({"x": 3.0}, {}),
    "added": ({"drop": (0.0, 0.5), "depth": [1, 2]}, {"drop": 0.1, "depth": 2}),
    "other choices": ({"act": ["silu", "relu"]}, {}),
}


def study(sampler, space=SPACE, **fields):
    options = {"population_size": 4} if sampler in ("nsga2", "evolution") else {}
    if sampler == "evolution":
        options["sample_size"] = 2
    return spec(
        StrategySpec("asha", max_epochs=9),
        n_trials=100,
        space=parse_space(space),
        sampler=sampler,
        sampler_options=json.dumps(options),
        direction="minimize",
        **fields,
    )


def edit(of, given, assumed):
    return edited(of, {name: form_of(name, each) for name, each in given.items()}, assumed, {})[0]


def trained(number, params, notes=""):
    """A trial with a result at the lowest rung."""
    value = abs(dict(params).get("x", 0.0) - 4.0)
    return Trial(
        id=f"s-1-{number:04d}",
        study="s-1",
        number=number,
        params=tuple(params),
        created_at=0.0,
        state=TrialState.PAUSED,
        epoch=1,
        value=value,
        values={1: value},
        notes=notes,
    )


def grown(host, of, trials, rounds, first=0):
    for index in range(first, first + rounds):
        answer = host.ask(of, index, 4, trials)
        notes = answer.notes or ("",) * len(answer.trials)
        known = len(trials)
        drawn = enumerate(zip(answer.trials, notes, strict=True), start=known)
        trials += [trained(number, *each) for number, each in drawn]
    return trials


@pytest.mark.parametrize("change", EDITS)
@pytest.mark.parametrize("sampler", sorted(set(SAMPLERS) - {"grid"}))
def test_each_sampler_draws_from_the_new_space(sampler, change):
    host, before = SamplerHost(), study(sampler, further=())
    trials = grown(host, before, [], 4)
    after = edit(before, *EDITS[change])
    new = grown(host, after, trials, 4, first=4)[16:]
    names = [name for name, _ in after.space]
    for trial in new:
        params = dict(trial.params)
        assert list(params) == names
        for name, given in EDITS[change][0].items():
            if isinstance(given, tuple):
                assert given[0] <= params[name] <= given[1]
            else:
                assert params[name] in (given if isinstance(given, list) else [given])
    # A host that is made after a crash answers alike.
    assert SamplerHost().ask(after, 9, 3, trials) == host.ask(after, 9, 3, trials)


def test_tpe_learns_from_the_earlier_trials_that_fit():
    host, before = SamplerHost(), study("tpe", {"x": Float(-100, 100)})
    trials = grown(host, before, [], 6)
    after = edit(before, {"x": (-100, 120)}, {})
    for known, nearest in ((trials, True), ([], False)):
        drawn = [host.ask(after, index, 1, known).trials[0] for index in range(20, 40)]
        near = sum(abs(dict(params)["x"] - 4) < 40 for params in drawn)
        assert (near >= 15) == nearest, f"{near} of 20 are near the best"


def test_earlier_trials_count_with_the_value_that_they_are_taken_to_have_had():
    when = {"kind": ["a", "b"], "x": Float(0, 1, when={"kind": "a"})}
    before = study("tpe", when, conditions=parse_conditions(when))
    after = edit(before, {"drop": (0.0, 0.5)}, {"drop": 0.1})
    assert with_assumed(after, (("kind", "b"),)) == (("kind", "b"), ("drop", 0.1))
    assert with_assumed(before, (("kind", "b"),)) == (("kind", "b"),)
    full = (("kind", "a"), ("x", 0.5), ("drop", 0.3))
    assert with_assumed(after, full) == full


def test_a_second_edit_of_the_epochs_has_samplers_read_the_new_rungs():
    host, of = SamplerHost(), study("tpe")
    trials = grown(host, of, [], 3)
    for epochs in (27, 81):
        of = edited(of, {}, {}, {"max_epochs": epochs})[0]
        for trial in trials:
            trial.values = {**trial.values, epochs: trial.value * -1.0}
        assert host.ask(of, 9, 3, trials) == SamplerHost().ask(of, 9, 3, trials)


def test_results_from_before_the_study_count_with_assumed_values():
    known = tuple(
        Observation((("x", x), ("n", 2), ("act", "relu")), abs(x)) for x in map(float, range(10))
    )
    after = edit(study("gp", observations=known), {"drop": (0.0, 0.5)}, {"drop": 0.1})
    host = SamplerHost()
    host.ask(after, 0, 1, [])
    [(_, views)] = host._views.values()
    assert [each.params["drop"] for each in views[None].shown[:10]] == [0.1] * 10


def test_random_and_quasi_random_draw_by_the_number_of_the_trial():
    for sampler in ("random", "qmc"):
        before = study(sampler)
        after = edit(before, {"x": (5, 6)}, {})
        host = SamplerHost()
        whole = host.ask(after, 0, 8, []).trials
        trials = [trained(k, p) for k, p in enumerate(whole) if k not in (2, 5)]
        again = host.ask(after, 7, 2, trials, resampled=[2, 5])
        assert again.trials == (whole[2], whole[5])


def test_a_grid_has_the_points_that_no_trial_had():
    before = study("grid", GRID)
    host = SamplerHost()
    trials = grown(host, before, [], 3)
    after = edit(before, {"n": 1, "drop": [0.1, 0.2]}, {"drop": 0.1})
    answer = host.ask(after, 3, 100, trials)
    assert answer.exhausted
    had = {with_assumed(after, trial.params) for trial in trials}
    assert (
        len(set(answer.trials))
        == len(answer.trials)
        == 5 * 1 * 3 * 2 - sum(dict(point)["n"] == 1 for point in had)
    )
    assert not had & set(answer.trials)


def test_a_view_of_a_study_that_was_not_edited_is_kept():
    host, of = SamplerHost(), study("tpe")
    trials = grown(host, of, [], 1)
    [(_, kept)] = host._views.values()
    host.ask(replace(of, weight=2.0), 1, 1, trials)
    [(_, still)] = host._views.values()
    assert still[None] is kept[None]
