"""A super-net and the study of its candidates, on real workers that are killed."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from pathlib import Path

import optuna
import pytest
import torch
from nas_code import Fitted, train
from penstock import (
    FullBudget,
    Resources,
    Sampler,
    UsageError,
    create_study,
    load_study,
    nas,
)
from penstock.app.host import locks
from supernet_code import Candidate, Sized, Space, Super

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def supernet(running):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.settings.environment().items():
            patch.setenv(name, value)
        study = create_study(study_name="super", metric="loss", seed=3, strategy=FullBudget(3))
        study.optimize(Super, {"unused": [1]}, n_trials=1, show_progress=False)
        yield study


def loss_of(net):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        data = Fitted({}).data().validation[:]
        with torch.no_grad():
            return Fitted({}).loss(net, data).double().item()
    finally:
        torch.set_num_threads(threads)


def test_candidates_are_trials_like_any_others_whatever_is_killed(site, supernet):
    study = create_study(
        study_name="evolved-paths", metric="loss", seed=1,
        sampler=Sampler("evolution", population_size=4, sample_size=2),
        strategy=nas.OneShot(supernet, batches=3),
    )  # fmt: skip
    study.submit(Candidate, nas.space(Space), n_trials=12)
    site.until(lambda: len(site.reader.epochs(study.id)) >= 4, "four are evaluated")
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    assert site.wait(study.id).status == "complete"
    study = load_study("evolved-paths")
    assert len(study.trials) == 12
    assert len({tuple(trial.params.items()) for trial in study.trials}) > 6
    assert all(list(trial.intermediate_values) == [1] for trial in study.trials)
    assert study.best_value == min(trial.value for trial in study.trials)
    net = nas.best_model(study)
    assert net.architecture == study.best_params
    assert loss_of(net) == study.best_value
    weights, trained = net.state_dict(), nas.best_model(supernet).state_dict()
    assert all(torch.equal(weights[name], trained[name]) for name, _ in net.named_parameters()), (
        "nothing was trained"
    )
    assert {"depth", "join", "cell.0.op0"} <= optuna.importance.get_param_importances(study).keys()

    first = study.trials[0]
    size = nas.parameters(nas.build(Space, first.params))
    again = create_study(
        study_name="again", metric=["loss", "parameters"], directions=["minimize"] * 2, seed=1,
        sampler="random", strategy=nas.OneShot(supernet, batches=3),
        constraints={"parameters": size},
    )  # fmt: skip
    assert again._handle.plan.strategy == study._handle.plan.strategy
    larger = first.params | {"depth": 3, "op0": "relu", "op1": "relu", "op2": "relu"}
    assert nas.parameters(nas.build(Space, larger)) > size
    for params in (first.params, larger):
        again.enqueue_trial(params)
    again.optimize(Sized, nas.space(Space), n_trials=2, show_progress=False)
    same, refused = again.trials
    assert same.values == [first.value, size], "the same trial of the same seed"
    assert refused.state.name == "PRUNED"
    assert not refused.intermediate_values


REST = """
class Digits(penstock.TorchTrainable):
    def data(self):
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.tensor(digits.images[:192] / 16, dtype=torch.float32).unsqueeze(1)
        points = torch.utils.data.TensorDataset(images, torch.tensor(digits.target[:192]))
        return penstock.Data(points, points)

    def model(self):
        return nas.build(Net, self.params)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""


def test_the_piece_of_the_docs_runs(site, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "nas.md").read_text()
    classes, piece = (
        textwrap.dedent(re.search(rf"{before}\n\n((?:    .*\n|\n)+)", page)[1])
        for before in ("do for a learning rate\\.", "## Super-nets")
    )
    assert "FullBudget(30)" in piece
    assert "n_trials=200" in piece
    trained, main = piece.split("\n\n\n")
    main = main.replace("FullBudget(30)", "FullBudget(1)").replace("n_trials=200", "n_trials=3")
    script = tmp_path / "script.py"
    guard = 'if __name__ == "__main__":\n'
    script.write_text(f"{classes}\n{REST}\n{trained}\n{guard}{textwrap.indent(main, '    ')}")
    printed = site.finish(site.python(script))
    assert printed.count("'width': 16") == 2


def test_what_candidates_have_no_use_for_is_refused(site, supernet):
    strategy = nas.OneShot(supernet)
    space = nas.space(Space)

    def study(**options):
        return create_study(metric="loss", strategy=strategy, **options)

    with pytest.raises(UsageError, match=r"strategy = 'OneShot' .*for a TorchTrainable"):
        study().submit(train, space, n_trials=1)
    with pytest.raises(UsageError, match=r"resources.max_width = 2 .*1 with OneShot"):
        study(resources=Resources(max_width=2)).submit(Candidate, space, n_trials=1)
    with pytest.raises(UsageError, match=r"system = 'tune' .*OneShot, which trains nothing"):
        study(system="tune").submit(Candidate, space, n_trials=1)
    with pytest.raises(UsageError, match=r"OneShot.supernet = 'super' .*a study that has trained"):
        nas.OneShot("super")
    with pytest.raises(UsageError, match=r"OneShot.batches = 0 "):
        nas.OneShot(supernet, batches=0)
    with pytest.raises(UsageError, match="trial = 7 is refused"):
        nas.OneShot(supernet, trial=7)
