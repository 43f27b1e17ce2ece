"""Synchronous BOHB: Hyperband's brackets one at a time, and the model of Falkner et al. 2018."""

from ledgers.study_ledger import Curves, study_spec
from optuna.trial import TrialState
from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.ledger import MemoryLedger
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import EpochReported, StudySubmitted
from penstock.scheduler.model.study import StrategySpec, number_of
from worlds.plain_devices import PlainDevices


class Watched(SamplerHost):
    """Notes at each ask how many results the model is made of, and of which rung."""

    def __init__(self):
        super().__init__()
        self.learnt = []

    def ask(self, spec, index, n, trials, enqueued=(), *, resampled=()):
        answer = super().ask(spec, index, n, trials, enqueued, resampled=resampled)
        _, views = self._views[spec.id]
        shown = [t for t in views[None].shown if t.state is TrialState.COMPLETE]
        by_number = {trial.number: trial for trial in trials}
        rungs = {
            next(e for e in (1, 3, 9) if by_number[t.number].values.get(e) == t.value)
            for t in shown
        }
        self.learnt.append((n, len(shown), rungs))
        return answer


def test_a_bracket_follows_the_one_before_and_the_model_is_of_the_highest_rung_with_d_plus_3():
    """R = 9, eta = 3, three parameters: by hand.

    The brackets have ceil(3 / (s + 1) * 3**s) configurations: 9 from epoch 1, 5 from epoch 3, 3
    from epoch 9. A rung has a model from N_min + 2 = (d + 1) + 2 = 6 results on. Before the second
    bracket there are 9 at epoch 1, 3 at 3 and 1 at 9: the model is of epoch 1. Before the third
    there are 14, 3 + 5 = 8 and 1 + 1 = 2: it is of epoch 3. The third trains 3 through all epochs:
    8 + 3 = 11 at epoch 3, and 2 + 3 = 5 at epoch 9, one too few for the fourth bracket (9 again).
    That brings one more there: 6, and the fifth (5 again) is asked for by epoch 9.
    """
    plan = StrategySpec("hyperband", max_epochs=9, overlap=False)
    spec = study_spec(n_trials=31, sampler="bohb", strategy=plan)
    clock, host, engine, ledger = SimulatedClock(0.0), Watched(), Engine(), MemoryLedger()
    devices = [Device(f"cpu.s.{n}", "s", "cpu", (n,), None) for n in range(3)]
    runner = Runner(engine, ledger, PlainDevices(clock, devices, Curves()), host, clock)
    runner.start(StudySubmitted(at=0.0, study=spec))
    while engine.state.studies:
        runner.turn(1.0)

    assert host.learnt == [
        (9, 0, set()), (5, 9, {1}), (3, 8, {3}), (9, 11, {3}), (5, 6, {9}),
    ]  # fmt: skip
    order = [number_of(e.trial) for _, e in ledger.events if isinstance(e, EpochReported)]
    edges = [0, 9, 14, 17, 26, 31]
    places = [next(k for k, edge in enumerate(edges[1:]) if n < edge) for n in order]
    assert places == sorted(places), "no bracket begins before the one before it is over"
