"""A super-net and the study of its candidates, on real workers that are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import optuna
import pytest
import torch
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
from user_code.nas_code import Fitted, train
from user_code.supernet_code import Candidate, Sized, Space, Super

pytestmark = [pytest.mark.integration, pytest.mark.extension("nas")]


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


def test_stories_say_who_was_evaluated_with_whose_weights(site, supernet):
    study = create_study(
        study_name="told-of", metric="loss", sampler="random",
        strategy=nas.OneShot("super", batches=3),
    )  # fmt: skip
    study.optimize(Candidate, nas.space(Space), n_trials=2, show_progress=False)
    told = " ".join(site.penstock("story", f"{study.id}/1").split())
    words = "is not trained: it was evaluated with the weights of trial 0 of super after epoch 3"
    assert words in told
    assert "measured again over 3 batches" in told
    told = " ".join(site.penstock("story", f"{supernet.id}/0").split())
    words = "it is a super-net: 2 candidates were evaluated with its weights after epoch 3, in"
    assert f"{words} study told-of" in told


CODE = f"""
import sys

sys.path.insert(0, {str(Path(__file__).parents[1])!r})

from user_code import supernet_code
from user_code.nas_code import train


class Candidate(supernet_code.Candidate):
    pass
"""
CANDIDATES = """\
code: train.py:Candidate
study_name: from-a-file
metric: loss
sampler: random
n_trials: 2
strategy:
  OneShot: {supernet: super, batches: 3}
"""


def test_a_study_of_candidates_can_be_a_file(site, supernet, tmp_path):
    space = {
        name: {"Categorical": {"choices": list(each.choices), "when": each.when}}
        for name, each in nas.space(Space).items()
    }
    text = f"{CANDIDATES}space: {json.dumps(space)}\n"
    (tmp_path / "train.py").write_text(CODE)
    file = tmp_path / "study.yaml"
    file.write_text(text)
    site.penstock("run", file)
    study = load_study("from-a-file")
    assert study._handle.plan.strategy == nas.OneShot(supernet, batches=3)
    assert [list(trial.intermediate_values) for trial in study.trials] == [[1], [1]]

    def refused(old, new):
        assert old in text
        file.write_text(text.replace("from-a-file", "refused").replace(old, new))
        return site.penstock("submit", file, status=2)

    said = refused("supernet: super,", "supernet: supper,")
    assert "line 7: strategy: OneShot.supernet = 'supper' is refused: " in said
    assert "there is no study 'supper'; there " in said
    said = refused("batches: 3", "trial: 7")
    assert "study.yaml, line 7: strategy: trial = 7 is refused: allowed is a number" in said
    said = refused("train.py:Candidate", "train.py:train")
    assert "study.yaml, line 6: strategy = 'OneShot' is refused: allowed is for a Torch" in said


GONE = """
from user_code import supernet_code


class Gone(supernet_code.Candidate):
    pass
"""


def test_a_study_that_trained_no_supernet_is_refused(site, supernet, tmp_path, monkeypatch):
    space = nas.space(Space)
    plain = create_study(
        study_name="plain", metric="loss", strategy=FullBudget(1), sampler="random"
    )
    plain.optimize(Candidate, space, n_trials=1, show_progress=False)
    words = (
        r"OneShot.supernet = 'plain' is refused: Candidate.model\(\) makes no super-net: have it"
        r" return nas.supernet\("
    )
    before = torch.get_rng_state()
    for given in (plain, "plain"):
        with pytest.raises(UsageError, match=words) as raised:
            nas.OneShot(given)
        assert raised.value.field == "OneShot.supernet"
    assert torch.equal(torch.get_rng_state(), before)

    (tmp_path / "vanished_code.py").write_text(GONE)
    monkeypatch.syspath_prepend(tmp_path)
    gone = create_study(study_name="gone", metric="loss", strategy=FullBudget(1), sampler="random")
    gone.optimize(import_module("vanished_code").Gone, space, n_trials=1, show_progress=False)
    with pytest.raises(UsageError, match=r"'gone' is refused: Gone.model\(\) makes no super-net"):
        nas.OneShot(gone)
    (tmp_path / "vanished_code.py").unlink()
    monkeypatch.delitem(sys.modules, "vanished_code")
    assert nas.OneShot(gone).supernet, "what it was is not known any more"


def test_what_candidates_have_no_use_for_is_refused(site, supernet):
    strategy = nas.OneShot(supernet)
    space = nas.space(Space)

    def study(**options):
        return create_study(metric="loss", strategy=strategy, **options)

    with pytest.raises(UsageError, match=r"strategy = 'OneShot' .*for a TorchTrainable"):
        study().submit(train, space, n_trials=1)
    with pytest.raises(UsageError, match=r"resources.max_width = 2 .*1, because OneShot"):
        study(resources=Resources(max_width=2)).submit(Candidate, space, n_trials=1)
    with pytest.raises(UsageError, match=r"system = 'tune' .*OneShot, which trains nothing"):
        study(system="tune").submit(Candidate, space, n_trials=1)
    with pytest.raises(UsageError, match=r"OneShot.supernet = None .*a study that has trained"):
        nas.OneShot(None)
    with pytest.raises(UsageError, match=r"OneShot.supernet = 'supper' is refused: "):
        nas.OneShot("supper")
    assert nas.OneShot("super") == strategy
    with pytest.raises(UsageError, match=r"OneShot.batches = 0 "):
        nas.OneShot(supernet, batches=0)
    with pytest.raises(UsageError, match="trial = 7 is refused"):
        nas.OneShot(supernet, trial=7)
