"""The sampler host: order, repeatability, exhaustion, and what TPE learns from paused trials."""

import json
import statistics
from collections import Counter
from dataclasses import replace

import pytest
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.spec.space import Categorical, Float, Int, grid_size, parse_space
from penstock.scheduler.model.study import Code, Objective, StrategySpec, StudySpec
from penstock.scheduler.model.trial import Failure, Trial, TrialState

SPACE = parse_space({"x": Float(-10, 10), "n": Int(1, 64, log=True), "act": ["relu", "tanh"]})
GRID = parse_space({"lr": Float(0.1, 0.3, step=0.1), "act": ["relu", "tanh"]})
ASHA = StrategySpec("asha", max_epochs=9, min_epochs=1, eta=3)


def make_spec(sampler="tpe", space=SPACE, *, seed=0, options="{}", direction="minimize"):
    return StudySpec(
        id="s",
        name="s",
        contract="torch" if space else "objective",
        code=Code("module:attr", "/", "0" * 64),
        metric="loss",
        direction=direction,
        n_trials=100,
        space=space,
        sampler=sampler,
        sampler_options=options,
        strategy=ASHA,
        seed=seed,
    )


def trial(number, params, state=TrialState.WAITING, values=()):
    return Trial(
        id=f"s-{number:04d}",
        study="s",
        number=number,
        params=tuple(params),
        created_at=0.0,
        state=state,
        epoch=len(values),
        value=values[-1] if values else None,
        values=dict(enumerate(values, start=1)),
    )


def paused(proposals, error):
    """Trials that wait at the first rung with ``error(params)`` as their result."""
    return [
        trial(k, params, TrialState.PAUSED, [error(dict(params))])
        for k, params in enumerate(proposals)
    ]


def distance(params):
    return abs(params["x"] - 4.0)


# -- grid ------------------------------------------------------------------------------------------


def test_a_grid_gives_every_point_once_in_the_order_of_the_space_and_then_says_so():
    spec, host = make_spec("grid", GRID), SamplerHost()
    assert grid_size(GRID) == 6
    trials, seen, exhausted = [], [], False
    while not exhausted:
        answer, exhausted, _ = host.ask(spec, len(trials), 2, trials)
        seen += answer
        trials += [trial(len(trials) + k, params) for k, params in enumerate(answer)]
    assert [tuple(dict(point).values()) for point in seen] == [
        (0.1, "relu"), (0.1, "tanh"), (0.2, "relu"), (0.2, "tanh"), (0.3, "relu"), (0.3, "tanh"),
    ]  # fmt: skip
    assert host.ask(spec, 9, 4, trials) == ((), True, ())


def test_a_grid_asked_for_more_than_it_has_gives_what_it_has():
    answer, exhausted, _ = SamplerHost().ask(make_spec("grid", GRID), 0, 50, [])
    assert len(set(answer)) == 6
    assert exhausted


def test_an_enqueued_point_of_a_grid_is_not_tried_a_second_time():
    spec = make_spec("grid", GRID)
    enqueued = [(("lr", 0.3), ("act", "relu")), (("lr", 0.15),), (("lr", 0.3), ("act", "relu"))]
    answer, exhausted, _ = SamplerHost().ask(spec, 0, 50, [], enqueued)
    assert answer[0] == (("lr", 0.3), ("act", "relu"))
    assert answer[1] == (("lr", 0.15), ("act", "relu")), "a missing name is filled from the grid"
    assert answer[2] == answer[0], "but what the user wants twice he gets twice"
    assert len(answer) == 3 + 5
    assert exhausted


def test_a_grid_longer_than_memory_is_counted_rather_than_listed():
    spec = make_spec("grid", parse_space({"n": Int(0, 10**9), "m": Int(0, 10**9)}))
    answer, exhausted, _ = SamplerHost().ask(spec, 0, 2, [])
    assert answer == ((("n", 0), ("m", 0)), (("n", 0), ("m", 1)))
    assert not exhausted


# -- random and TPE --------------------------------------------------------------------------------


def test_random_gives_the_same_table_however_the_asks_are_cut():
    spec = make_spec("random")
    whole, *_ = SamplerHost().ask(spec, 0, 6, [])
    host, trials = SamplerHost(), []
    for index, n in enumerate((1, 3, 2)):
        answer, exhausted, _ = host.ask(spec, index, n, trials)
        assert not exhausted
        trials += [trial(len(trials) + k, params) for k, params in enumerate(answer)]
    assert tuple(t.params for t in trials) == whole
    assert len(set(whole)) == 6


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_host_rebuilt_from_the_trials_proposes_what_the_old_one_would_have(sampler):
    spec, old, trials = make_spec(sampler), SamplerHost(), []
    for index in range(12):
        (first, second), *_ = old.ask(spec, index, 2, trials)
        for params in (first, second):
            trials.append(trial(len(trials), params, TrialState.RUNNING))
        # Earlier trials move on: paused, promoted and running again, completed, failed.
        k = len(trials) - 4
        if k >= 0:
            value = distance(dict(trials[k].params))
            trials[k] = trial(k, trials[k].params, TrialState.PAUSED, [value])
            trials[k + 1] = trial(k + 1, trials[k + 1].params, TrialState.FAILED)
        if k >= 8:
            trials[k - 8].state = TrialState.RUNNING
            trials[k - 8].values |= {2: value, 3: value}
            trials[k - 8].epoch = 3
    asked = [old.ask(spec, index, 3, trials) for index in (12, 13)]
    rebuilt = SamplerHost()
    assert [rebuilt.ask(spec, index, 3, trials) for index in (12, 13)] == asked
    assert asked[0] != asked[1] or sampler == "random", "another ask, another draw"


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_study_seed_decides(sampler):
    draws = [SamplerHost().ask(make_spec(sampler, seed=s), 0, 3, [])[0] for s in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("known", [0, 15])
def test_proposals_are_plain_values_within_the_space(sampler, known):
    space = parse_space(
        {
            "f": Float(0, 1),
            "log": Float(1e-4, 1, log=True),
            "step": Float(0, 1, step=0.25),
            "i": Int(1, 9, step=2),
            "c": Categorical(["a", None, 3]),
            "one": ["constant"],
        }
    )
    spec = make_spec(sampler, space)
    seen, *_ = SamplerHost().ask(make_spec("random", space), 0, known, [])
    trials = paused(seen, lambda params: params["f"])
    answer, *_ = SamplerHost().ask(spec, 1, 40, trials)
    assert len(answer) == 40
    for params in map(dict, answer):
        assert [type(params[name]) for name in ("f", "log", "step", "i")] == [float] * 3 + [int]
        assert 0 <= params["f"] <= 1 and 1e-4 <= params["log"] <= 1
        assert params["step"] in (0, 0.25, 0.5, 0.75, 1)
        assert params["i"] in (1, 3, 5, 7, 9)
        assert params["c"] in ("a", None, 3)
        assert params["one"] == "constant"


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_enqueued_values_come_first_and_the_missing_ones_are_drawn(sampler):
    spec = make_spec(sampler)
    answer, *_ = SamplerHost().ask(spec, 0, 3, [], [(("x", 1.25),)])
    plain, *_ = SamplerHost().ask(spec, 0, 3, [])
    assert dict(answer[0])["x"] == 1.25
    assert dict(answer[0])["n"] == dict(plain[0])["n"]
    if sampler == "random":
        assert answer[1:] == plain[1:], "the user's wish does not shift the others"


def test_no_more_is_enqueued_than_was_asked_for():
    answer, *_ = SamplerHost().ask(make_spec(), 0, 1, [], [(("x", 1.0),), (("x", 2.0),)])
    assert [dict(params)["x"] for params in answer] == [1.0]


def _mean_error(trials, *, space=SPACE, direction="minimize", options="{}", **seeds):
    spec = make_spec(space=space, direction=direction, options=options, **seeds)
    answer, *_ = SamplerHost().ask(spec, 1, 4, trials)
    return statistics.mean(distance(dict(params)) for params in answer)


@pytest.mark.parametrize(
    ("direction", "options"),
    [("minimize", "{}"), ("maximize", "{}"), ("minimize", '{"multivariate":false}')],
)
def test_tpe_learns_from_trials_that_are_paused_at_the_first_rung(direction, options):
    space = parse_space({"x": Float(-10, 10)})
    sign = 1 if direction == "minimize" else -1
    told, untold = [], []
    for seed in range(12):
        seen, *_ = SamplerHost().ask(make_spec("random", space, seed=seed), 0, 30, [])
        trials = paused(seen, lambda params: sign * distance(params) ** 2)
        waiting = [trial(k, t.params) for k, t in enumerate(trials)]
        plan = {"space": space, "direction": direction, "options": options, "seed": seed}
        told.append(_mean_error(trials, **plan))
        untold.append(_mean_error(waiting, **plan))
    # Far apart: an even draw is 5.8 from 4.0 on average, and 30 results narrow it to under 3.
    assert statistics.mean(told) < 0.6 * statistics.mean(untold)


def test_a_promoted_trial_still_counts_at_the_rung_that_it_reached():
    """While it runs on, TPE neither forgets it nor believes its half-way value."""
    spec, host = make_spec(), SamplerHost()
    seen, *_ = host.ask(make_spec("random"), 0, 30, [])
    at_rest = paused(seen, distance)
    best = min(at_rest, key=lambda trial: trial.value)
    k, params, value = best.number, best.params, best.value
    going_on, failed = [*at_rest], [*at_rest]
    going_on[k] = trial(k, params, TrialState.RUNNING, [value, 1e9])
    failed[k] = trial(k, params, TrialState.FAILED, [value])
    assert host.ask(spec, 1, 2, going_on) == host.ask(spec, 1, 2, at_rest)
    assert host.ask(spec, 1, 2, failed) != host.ask(spec, 1, 2, at_rest)


def test_tpe_stays_away_from_what_no_device_has_the_memory_for():
    """Trials without room are worse than any result. Failures of other kinds say nothing."""
    space = parse_space({"x": Float(-10, 10)})
    near = {"memory": [], "exception": []}
    for seed in range(12):
        spec = make_spec(space=space, seed=seed)
        seen, *_ = SamplerHost().ask(make_spec("random", space, seed=seed), 0, 40, [])
        trials = paused(seen, lambda params: abs(params["x"] + 1.0))
        for kind, found in near.items():
            for each in trials:
                if dict(each.params)["x"] > -1.0:  # too large
                    each.state, each.values = TrialState.FAILED, {}
                    each.failure = Failure(kind, "as it was")
            proposals, *_ = SamplerHost().ask(spec, 1, 8, trials)
            found += [dict(params)["x"] for params in proposals]
    too_large = {kind: sum(x > -1.0 for x in found) for kind, found in near.items()}
    assert too_large["memory"] < 0.7 * too_large["exception"]


def test_results_that_arrive_change_what_a_living_host_proposes():
    spec, host = make_spec(), SamplerHost()
    seen, *_ = host.ask(make_spec("random"), 0, 30, [])
    before = host.ask(spec, 1, 2, [trial(k, params) for k, params in enumerate(seen)])
    assert host.ask(spec, 1, 2, paused(seen, distance)) != before


def test_tpe_starts_at_random_for_as_many_trials_as_its_option_says():
    spec = make_spec(options='{"n_startup_trials": 100}')
    seen, *_ = SamplerHost().ask(make_spec("random"), 0, 30, [])
    waiting = [trial(k, params) for k, params in enumerate(seen)]
    assert SamplerHost().ask(spec, 1, 3, paused(seen, distance)) == SamplerHost().ask(
        spec, 1, 3, waiting
    )


# -- define-by-run ---------------------------------------------------------------------------------

X = dict(SPACE)["x"]
DEPTH = Int(1, 3).to_json()


def test_without_a_space_new_trials_have_the_enqueued_values_only():
    answer, exhausted, _ = SamplerHost().ask(make_spec(space=None), 0, 2, [], [(("x", 1.0),)])
    assert answer == ((("x", 1.0),), ())
    assert not exhausted


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_suggestion_depends_on_trial_and_name_and_not_on_the_host(sampler):
    spec = make_spec(sampler, None)
    others = paused([(("x", float(k)),) for k in range(-9, 10)], distance)
    running = trial(len(others), (), TrialState.RUNNING)
    trials = [*others, running]
    value = SamplerHost().suggest(spec, running, "x", X, trials)
    host = SamplerHost()
    host.suggest(spec, running, "depth", DEPTH, trials)
    assert host.suggest(spec, running, "x", X, trials) == value
    assert -10 <= value <= 10
    later = trial(len(trials), (), TrialState.RUNNING)
    assert host.suggest(spec, later, "x", X, [*trials, later]) != value
    assert type(host.suggest(spec, running, "depth", DEPTH, trials)) is int


def test_tpe_learns_within_a_branch_of_a_conditional_space():
    """Half of the trials never drew ``x``, one drew it from another range; the rest teach."""
    spec = make_spec(space=None)
    told, untold = [], []
    for seed in range(12):
        spec = make_spec(space=None, seed=seed)
        host = SamplerHost()
        drawn, *_ = host.ask(make_spec("random", seed=seed), 0, 40, [])
        branches = [
            (("kind", "a"), ("x", dict(params)["x"])) if k % 2 else (("kind", "b"),)
            for k, params in enumerate(drawn)
        ]
        branches[0] = (("kind", "a"), ("x", "a word"))
        others = paused(branches, lambda p: distance(p) if type(p.get("x")) is float else 20.0)
        running = trial(len(others), (("kind", "a"),), TrialState.RUNNING)
        told.append(abs(host.suggest(spec, running, "x", X, [*others, running]) - 4.0))
        untold.append(abs(SamplerHost().suggest(spec, running, "x", X, [running]) - 4.0))
    assert statistics.mean(told) < 0.6 * statistics.mean(untold)


def test_a_suggested_constant_is_given_back():
    text = '{"name": "FloatDistribution", "attributes": {"low": 2.0, "high": 2.0, "log": false, "step": null}}'  # noqa: E501 - one message as it arrives
    running = trial(0, (), TrialState.RUNNING)
    assert SamplerHost().suggest(make_spec(space=None), running, "x", text, [running]) == 2.0


def test_a_forgotten_study_is_asked_for_again_without_harm():
    host, spec = SamplerHost(), make_spec()
    first = host.ask(spec, 0, 2, [])
    host.forget(spec.id)
    host.forget("never seen")
    assert host.ask(spec, 0, 2, []) == first


def test_random_draws_cover_the_choices_evenly():
    answer, *_ = SamplerHost().ask(make_spec("random"), 0, 200, [])
    counts = Counter(dict(params)["act"] for params in answer)
    assert 70 < counts["relu"] < 130


# -- quasi-random ----------------------------------------------------------------------------------


def test_quasi_random_points_depend_on_their_number_alone_and_fill_the_space():
    spec = make_spec("qmc")
    whole, *_ = SamplerHost().ask(spec, 0, 128, [])
    first, *_ = SamplerHost().ask(spec, 0, 70, [])
    trials = [trial(k, params) for k, params in enumerate(first)]
    rest, *_ = SamplerHost().ask(spec, 1, 58, trials)
    assert whole == first + rest
    assert whole != SamplerHost().ask(make_spec("qmc", seed=1), 0, 128, [])[0]
    x = sorted(dict(params)["x"] for params in whole)
    # Of 128 Sobol points exactly one lies in each 128th of an axis.
    assert [int((value + 10) / 20 * 128) for value in x] == list(range(128))
    assert Counter(dict(params)["act"] for params in whole) == {"relu": 64, "tanh": 64}
    assert {dict(params)["n"] for params in whole} >= {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (Float(0.1, 0.5, step=0.2), {0.1: 0.34, 0.3: 0.33, 0.5: 0.33}),
        (Int(1, 5, step=2), {1: 0.34, 3: 0.33, 5: 0.33}),
        (Categorical(["a", None]), {"a": 0.5, None: 0.5}),
    ],
)
def test_quasi_random_values_are_drawn_as_often_as_each_other(parameter, values):
    answer, *_ = SamplerHost().ask(make_spec("qmc", parse_space({"p": parameter})), 0, 256, [])
    counts = Counter(round(v, 9) if isinstance(v, float) else v for ((_, v),) in answer)
    assert {value: count / 256 for value, count in counts.items()} == pytest.approx(
        values, abs=0.02
    )


# -- samplers that compare equals ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "asked"), [("bohb", 12), ("gp", 2)])  # a GP's take long
def test_what_learns_finds_better_ones_than_chance_and_repeats_itself(name, asked):
    def after(host):
        trials = paused(host.ask(make_spec("random"), 0, 30, [])[0], distance)
        answer, *_ = host.ask(make_spec(name), 1, asked, trials)
        return [dict(params) for params in answer]

    found = after(SamplerHost())
    assert found == after(SamplerHost())
    learnt = [p for k, p in enumerate(found, start=30) if name == "gp" or k % 3]
    chance = [dict(p) for p in SamplerHost().ask(make_spec("random"), 0, 30, [])[0]]
    assert statistics.mean(map(distance, learnt)) < 0.6 * statistics.mean(map(distance, chance))


@pytest.mark.parametrize(("name", "asked"), [("bohb", 12), ("gp", 2)])
def test_results_of_a_lower_rung_do_not_count_beside_enough_of_a_higher_one(name, asked):
    """At rung 1 the best x is -4, at rung 3 it is 4: 20 trials are at both."""
    points, *_ = SamplerHost().ask(make_spec("random"), 0, 60, [])
    trials = []
    for number, params in enumerate(points):
        x = dict(params)["x"]
        curve = [abs(x + 4.0) * 1e-6] + ([0.0, abs(x - 4.0)] if number < 20 else [])
        trials.append(trial(number, params, TrialState.PAUSED, curve))
    answer, *_ = SamplerHost().ask(make_spec(name), 1, asked, trials)
    learnt = [dict(p)["x"] for k, p in enumerate(answer, start=60) if name == "gp" or k % 3]
    assert statistics.median(abs(x - 4.0) for x in learnt) < 4.0


@pytest.mark.parametrize("name", ["qmc", "bohb", "gp"])
def test_a_name_drawn_while_the_objective_runs_is_in_its_range(name):
    host, spec = SamplerHost(), make_spec(name, None)
    text = parse_space({"x": Float(-1, 1)})[0][1]
    drawn = [host.suggest(spec, trial(k, ()), "x", text, []) for k in range(8)]
    assert len(set(drawn)) == 8
    assert all(-1 <= value <= 1 for value in drawn)


# -- samplers that keep something with each trial --------------------------------------------------

NOTING = [
    ("cmaes", "{}"),
    ("cmaes", '{"with_margin": true, "popsize": 6}'),
    ("cmaes", '{"use_separable_cma": true}'),
    ("nsga2", '{"population_size": 8}'),
]


def asked_and_told(spec, asks, host_of, *, delay=0):
    """Two configurations an ask; a trial's result is there ``delay`` trials after it was asked."""
    trials = []
    for index in range(asks):
        answer = host_of().ask(spec, index, 2, trials)
        for params, notes in zip(answer.trials, answer.notes, strict=True):
            new = trial(len(trials), params, TrialState.RUNNING)
            new.notes = notes
            trials.append(new)
        for number in range(max(0, len(trials) - delay)):
            if trials[number].value is None:
                params, notes = trials[number].params, trials[number].notes
                error = distance(dict(params)) + dict(params)["n"] / 64
                trials[number] = trial(number, params, TrialState.PAUSED, [error])
                trials[number].notes = notes
    return trials


@pytest.mark.parametrize(("sampler", "options"), NOTING)
@pytest.mark.parametrize("delay", [0, 3])
def test_a_fresh_host_for_every_ask_gives_the_table_of_one_that_was_kept(sampler, options, delay):
    spec, kept = make_spec(sampler, options=options), SamplerHost()
    one = asked_and_told(spec, 30, lambda: kept, delay=delay)
    many = asked_and_told(spec, 30, SamplerHost, delay=delay)
    assert [(t.params, t.notes) for t in one] == [(t.params, t.notes) for t in many]
    generations = [
        next(v for k, v in json.loads(t.notes).items() if k.endswith("generation"))
        for t in one
        if t.notes
    ]
    assert max(generations) >= 3, "it went on from generation to generation"
    errors = [t.value for t in one if t.value is not None]
    assert statistics.median(errors[-15:]) < 0.5 * statistics.median(errors[:15])


def test_an_evolution_that_lost_its_notes_is_another_one():
    """Without this, the test above would pass even if the notes were not needed."""
    for sampler, options in NOTING[:2]:
        spec = make_spec(sampler, options=options)
        trials = asked_and_told(spec, 20, SamplerHost)
        told = SamplerHost().ask(spec, 20, 2, trials)
        for each in trials:
            each.notes = ""
        assert SamplerHost().ask(spec, 20, 2, trials).trials != told.trials


def test_nsga2_learns_names_that_are_drawn_while_the_objective_runs():
    spec = make_spec("nsga2", None, options='{"population_size": 8, "mutation_prob": 0.1}')
    host, trials = SamplerHost(), []
    for index in range(64):
        [[_], _, [notes]] = [*host.ask(spec, index, 1, trials)]
        running = trial(index, (), TrialState.RUNNING)
        running.notes = notes
        trials.append(running)
        x = host.suggest(spec, running, "x", X, trials)
        assert SamplerHost().suggest(spec, running, "x", X, trials) == x
        value = abs(x - 4.0)
        trials[index] = trial(index, (("x", x),), TrialState.PAUSED, [value])
        trials[index].notes = notes
    generations = [json.loads(t.notes)["NSGAIISampler:generation"] for t in trials]
    assert generations == [k // 8 for k in range(64)]
    errors = [t.value for t in trials]
    assert statistics.mean(errors[-16:]) < 0.5 * statistics.mean(errors[:16])
    # A name that no ancestor had is drawn all the same.
    assert host.suggest(spec, running, "new", DEPTH, trials) in (1, 2, 3)


# -- several objectives and constraints ------------------------------------------------------------

BOTH = (Objective("other", "maximize"),)


def told(points, further=lambda params: (), constraints=lambda params: ()):
    trials = [
        trial(k, params, TrialState.COMPLETED, [distance(dict(params))])
        for k, params in enumerate(points)
    ]
    for each in trials:
        each.further = further(dict(each.params))
        each.constraints = constraints(dict(each.params))
    return trials


def spec_of(sampler, **fields):
    options = '{"population_size": 10}' if sampler == "nsga2" else "{}"
    plan = StrategySpec("full", max_epochs=1)
    return replace(make_spec(sampler, options=options), strategy=plan, **fields)


@pytest.mark.parametrize(("sampler", "n"), [("tpe", 12), ("gp", 3), ("nsga2", 12)])
def test_samplers_trade_objectives_off(sampler, n):
    """x near 4 is good for one, x near -4 for the other: between them is the front."""
    spec = spec_of(sampler, further=BOTH)
    points, *_ = SamplerHost().ask(make_spec("random"), 0, 60, [])
    trials = told(points, further=lambda params: (-abs(params["x"] + 4.0),))
    for each in trials:
        each.notes = '{"NSGAIISampler:generation": 0}'
    answer = SamplerHost().ask(spec, 1, n, trials)
    inside = sum(-5.5 <= dict(params)["x"] <= 5.5 for params in answer.trials)
    assert inside >= 0.7 * n, "chance would give 0.55"
    assert answer == SamplerHost().ask(spec, 1, n, trials)


@pytest.mark.parametrize(("sampler", "n"), [("tpe", 12), ("gp", 3), ("nsga2", 20)])
def test_samplers_keep_away_from_what_violates_a_constraint(sampler, n):
    """The best x is 4, and only x below 0 is allowed."""
    spec = spec_of(sampler, constraints=(("x", 0.0),))
    points, *_ = SamplerHost().ask(make_spec("random"), 0, 60, [])
    trials = told(points, constraints=lambda params: (("x", params["x"]),))
    for each in trials:
        each.notes = '{"NSGAIISampler:generation": 0}'

    def allowed():
        answer = SamplerHost().ask(spec, 1, n, trials)
        return sum(dict(params)["x"] <= 0.5 for params in answer.trials) / n

    assert allowed() >= 0.65
    for each in trials:
        each.constraints = ()
    assert allowed() <= 0.35


def test_tpe_goes_where_bounds_are_exceeded_by_less_if_nothing_was_trained():
    """Every model was infeasible before its first epoch; near x = 4 the least."""
    spec = spec_of("tpe", constraints=(("size", 0.0),))
    points, *_ = SamplerHost().ask(make_spec("random"), 0, 60, [])
    trials = told(points, constraints=lambda params: (("size", abs(params["x"] - 4.0) + 1.0),))
    for each in trials:
        each.state, each.value, each.values, each.epoch = TrialState.STOPPED, None, {}, 0
    answer = SamplerHost().ask(spec, 1, 12, trials)
    assert sum(abs(dict(params)["x"] - 4.0) < 2.0 for params in answer.trials) >= 8
    for sampler in ("random", "gp", "nsga2", "evolution"):
        answer = SamplerHost().ask(spec_of(sampler, constraints=spec.constraints), 1, 3, trials)
        assert len(answer.trials) == 3


@pytest.mark.parametrize(("sampler", "options"), [NOTING[0], NOTING[-1]])
def test_an_evolution_compares_at_the_lowest_rung_which_all_of_a_generation_reach(sampler, options):
    spec = make_spec(sampler, options=options)
    trials = asked_and_told(spec, 20, SamplerHost)
    before = SamplerHost().ask(spec, 20, 2, trials)
    for each in trials[:25]:
        each.values |= {2: 1e9, 3: -1e9}
    assert SamplerHost().ask(spec, 20, 2, trials) == before
    trials[25].values[1] = -1e9
    trials[30].values[1] = -1e9
    assert SamplerHost().ask(spec, 20, 2, trials) != before
