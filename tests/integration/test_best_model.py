"""The trained model of a study: in this process, and from a folder in another one."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
import torch
from penstock import ASHA, Float, FullBudget, Limits, UsageError, create_study, load_study, nas
from torch import nn
from user_code import nas_code
from user_code.nas_code import Chain, Fitted, Mutated, Net, Plain, activation, behind, train

pytestmark = [pytest.mark.integration, pytest.mark.extension("nas")]

SPACES = {
    Fitted: lambda: nas.space(Net),
    Mutated: lambda: nas.space(Chain, mutators=[activation, behind]),
    Plain: lambda: {"unused": Float(0, 1)},
}
#: A program that knows nothing but the folder prints the loss of its model, to the last digit.
LOSS = """
import sys, torch
sys.path.insert(0, {folder!r})
import model
torch.set_num_threads(1)
net = model.load()
x = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    print(repr(torch.nn.functional.mse_loss(net(x), x.sum(1, keepdim=True)).double().item()))
"""


def studied(code, name, n_trials=6, **options):
    study = create_study(
        study_name=f"trained-{name}", metric="loss", seed=2, fuse="off",
        strategy=ASHA(max_epochs=3), **options,
    )  # fmt: skip
    study.optimize(code, SPACES[code](), n_trials=n_trials, show_progress=False)
    return study


def loss_of(net):
    """The validation loss as a trial computes it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        code = Plain({})
        with torch.no_grad():
            return code.loss(net, code.data().validation[:]).double().item()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("code", SPACES)
def test_the_best_model_has_the_metric_that_its_trial_reported(site, tmp_path, code):
    study = studied(code, code.__name__)
    before = torch.random.get_rng_state()
    net = nas.best_model(study)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not net.training
    assert loss_of(net) == study.best_value
    folder = tmp_path / "a new" / "folder"
    assert site.penstock("best", study.id, "--model", folder) == f"{folder}\n"
    assert {each.name for each in folder.iterdir()} == {"weights.pt", "parameters.json", "model.py"}
    written = json.loads((folder / "parameters.json").read_text())
    assert written["params"] == study.best_params
    assert written["metrics"]["loss"] == study.best_value
    program = site.python("-c", LOSS.format(folder=str(folder)), cwd="/")
    assert float(site.finish(program)) == study.best_value
    if code is Mutated:
        assert written["derivation"] == net.derivation.as_json()
    assert bool(written["derivation"] and written["derivation"]["log"]) == (code is Mutated)


def test_a_model_comes_of_the_log_and_not_of_mutators_that_have_changed(site, monkeypatch):
    study = studied(Mutated, "log")

    @nas.mutator(match=nn.Linear)
    def changed(site):
        site.insert("Tanh")

    monkeypatch.setattr(nas_code, "behind", changed)
    number = study.best_trial.number
    assert loss_of(nas.best_model(load_study(study.study_name), number)) == study.best_value


def test_a_model_that_is_not_kept_is_refused_with_the_option_that_keeps_it(site):
    study = studied(Fitted, "kept", limits=Limits(keep_checkpoints=0))
    with pytest.raises(UsageError, match=r"the best trials only \(none\).*keep_checkpoints="):
        nas.best_model(study)
    kept = studied(Fitted, "two", limits=Limits(keep_checkpoints=2))
    best = sorted(
        (trial.value, trial.number) for trial in kept.trials if trial.state.name == "COMPLETE"
    )
    assert loss_of(nas.best_model(kept, best[1][1])) == best[1][0]
    [pruned, *_] = [trial.number for trial in kept.trials if trial.state.name == "PRUNED"]
    numbers = rf"\({best[0][1]}, {best[1][1]}\)"
    with pytest.raises(UsageError, match=rf"trial {pruned} .*{numbers}"):
        nas.best_model(kept, pruned)
    with pytest.raises(UsageError, match="trial = 99 is refused: allowed is a number from 0 to"):
        nas.best_model(kept, 99)


def test_of_several_objectives_one_must_be_named(site, tmp_path):
    study = create_study(
        study_name="trained-front", metric=["loss", "parameters"],
        directions=["minimize", "maximize"], sampler="grid", strategy=FullBudget(2),
        limits=Limits(keep_checkpoints=6),
    )  # fmt: skip
    study.optimize(Fitted, nas.space(Net), show_progress=False)
    front = [trial.number for trial in study.best_trials]
    with pytest.raises(UsageError, match=f"allowed is one of .*{front[-1]}"):
        nas.best_model(study)
    chosen = study.best_trials[-1]
    arguments = ("best", study.id, "--model", tmp_path, "--trial", chosen.number)
    site.penstock(*arguments)
    assert json.loads((tmp_path / "parameters.json").read_text())["trial"] == chosen.number
    assert nas.parameters(nas.best_model(study, chosen.number)) == chosen.values[1]


def test_code_that_is_no_trainable_or_is_not_there_is_refused(site, tmp_path, monkeypatch):
    study = create_study(study_name="trained-epochs", metric="size", strategy=FullBudget(1))
    study.optimize(train, nas.space(Net, outputs=2), n_trials=1, show_progress=False)
    with pytest.raises(UsageError, match="is no TorchTrainable"):
        nas.best_model(study)
    source = tmp_path / "gone_code.py"
    source.write_text(Path(nas_code.__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    import gone_code

    study = create_study(
        study_name="trained-gone", metric="loss", strategy=FullBudget(1)
    )  # fmt: skip
    study.optimize(gone_code.Fitted, nas.space(Net), n_trials=2, show_progress=False)
    source.unlink()
    monkeypatch.delitem(sys.modules, "gone_code")
    sys.path_importer_cache.clear()
    with pytest.raises(UsageError, match=r"Fitted of .*gone_code.py, cannot be imported here: No"):
        nas.best_model(study)
    assert loss_of(nas.best_model(study, code=Fitted)) == study.best_value
    with pytest.raises(UsageError, match="makes another model than the one that was trained"):
        nas.best_model(study, code=Plain)
    with pytest.raises(UsageError, match="code = 3 is refused: allowed is a class that derives"):
        nas.best_model(study, code=3)
    error = site.penstock("best", study.id, "--model", tmp_path / "model", status=2)
    assert "put the file back" in error
    assert not (tmp_path / "model").exists()


@pytest.mark.extension("exports")
@pytest.mark.extension("report")
def test_of_an_imported_study_only_code_and_a_store_that_the_user_names_are_used(site, tmp_path):
    study = studied(Fitted, "exported")
    exported = tmp_path / "theirs.json"
    site.penstock("export", study.id, "-o", exported)
    body = json.loads(exported.read_text())
    [store] = {state["uri"].rsplit("/", 2)[0] for t in body["trials"] for state in t["checkpoints"]}
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server = f"http://127.0.0.1:{listening.getsockname()[1]}"
    for trial in body["trials"]:
        trial["written"] = json.dumps({"system_attrs": [["cma:optimizer:0", '"80"']]})
        for state in trial["checkpoints"]:
            state["uri"] = f"simplecache::{server}{state['uri'].removeprefix(store)}"
    body["spec"] |= {"id": "theirs-1", "name": "theirs"}
    # A file next to the export, under a name that the reader of the export may have.
    body["spec"]["code"] = {"target": "beside:Fitted", "path": "/proc/self/cwd", "digest": "0" * 64}
    exported.write_text(json.dumps(body))
    (tmp_path / "beside.py").write_text("open('ran', 'w')\nfrom nas_code import Fitted\n")
    said = site.penstock("import", exported)
    assert "imported theirs: penstock report theirs\n6 system attributes left out: only" in said
    folder = tmp_path / "model"
    arguments = ("best", "theirs", "--model", folder)
    of_code, of_store = ("--code", f"{nas_code.__file__}:Fitted"), ("--store", store)
    for given in ((), of_code, of_store):
        refused = site.penstock(*arguments, *given, status=2, cwd=tmp_path)
        assert "theirs was imported" in refused
        assert "--code FILE.py:NAME --store URL" in refused
    theirs = load_study("theirs")
    with pytest.raises(UsageError, match=r"nas.best_model\(study, code=Class, store=URL\)"):
        nas.best_model(theirs)
    with pytest.raises(UsageError, match="theirs was imported"):
        nas.best_model(theirs, code=Fitted)
    with pytest.raises(UsageError, match="it was imported, and every worker would read"):
        nas.OneShot("theirs")
    facts = json.loads(site.penstock("best", "theirs", "--json", cwd=tmp_path))
    assert facts["checkpoint"]["gone"] is None
    assert not (tmp_path / "ran").exists()
    assert not folder.exists()
    with pytest.raises(BlockingIOError):
        listening.accept()
    listening.close()

    assert loss_of(nas.best_model(theirs, code=Fitted, store=store)) == study.best_value
    site.penstock(*arguments, *of_code, *of_store)
    program = site.python("-c", LOSS.format(folder=str(folder)), cwd="/")
    assert float(site.finish(program)) == study.best_value
    for given in ("nas_code.py", f"{tmp_path}/none.py:Fitted"):
        refused = site.penstock(*arguments, "--code", given, *of_store, status=2)
        assert "allowed is FILE.py:NAME, with the path of a file" in refused


SCRIPT = """
import penstock
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Own(penstock.TorchTrainable):
    def data(self):
        x = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
        points = TensorDataset(x, x.sum(1, keepdim=True))
        return penstock.Data(train=points, validation=points)

    def model(self):
        return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(self, model, batch):
        x, y = batch
        return nn.functional.mse_loss(model(x), y)

{guard}
    once = penstock.FullBudget(1)
    study = penstock.create_study(study_name={name!r}, metric="loss", strategy=once)
    study.optimize(Own, {{"unused": penstock.Float(0, 1)}}, n_trials=2, show_progress=False)
    print(type(penstock.nas.best_model(study)).__name__, study.best_value)
"""


def test_a_script_gets_the_model_of_its_own_code_and_so_does_who_imports_it(site, tmp_path):
    script = tmp_path / "a-script.py"
    for name, guard in (("guarded", 'if __name__ == "__main__":'), ("open", "if True:")):
        script.write_text(SCRIPT.format(guard=guard, name=f"trained-{name}"))
        printed = site.finish(site.python(script)).split()
        assert printed[0] == "Sequential"
        folder = tmp_path / name
        arguments = ("best", f"trained-{name}", "--model", folder)
        if name == "open":
            assert "under `if __name__ ==" in site.penstock(*arguments, status=2)
            script.write_text(SCRIPT.replace("study_name={name!r}, ", "").format(guard=guard))
            assert "it runs a study" in site.penstock(*arguments, status=2)
            continue
        site.penstock(*arguments)
        program = site.python("-c", LOSS.format(folder=str(folder)), cwd="/")
        assert float(site.finish(program)) == float(printed[1])
