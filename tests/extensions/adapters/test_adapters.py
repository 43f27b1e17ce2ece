"""The adapters in real trainers: taken up from the store, exact where they say so, and refused."""

from __future__ import annotations

import copy
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import penstock
import pytest
from penstock import TrialFailed, UsageError
from penstock.extensions.adapters.sklearn import restore, state_of
from penstock.tasks.checkpoints import portable
from penstock.tasks.checkpoints.state import state_hash
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training import loop
from sklearn.cluster import Birch, MiniBatchKMeans
from sklearn.decomposition import IncrementalPCA
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from trainers.trainer_process import TrainerProcess, known, segment
from user_code import adapter_code

EXAMPLES = Path(__file__).parents[3] / "examples"
#: A function, the study's metric, a configuration; and whether what it stores after an epoch has
#: the same bits after it was taken up elsewhere. Hugging Face's files and Lightning's checkpoints
#: hold times and paths.
FUNCTIONS = {
    "sklearn_partial_fit": ("accuracy", {"lr": 0.01, "alpha": 1e-4, "hidden": 32}, True),
    "xgboost_digits": (
        "validation-mlogloss",
        {"eta": 0.3, "max_depth": 3, "min_child_weight": 1.0},
        True,
    ),
    "keras_digits": ("val_loss", {"lr": 0.01, "hidden": 32, "dropout": 0.3}, True),
    "huggingface_tiny": ("eval_loss", {"lr": 0.003, "hidden": 16}, False),
    "lightnings_own": ("val_error", {"lr": 0.01}, False),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def trainers(folder):
    """Two, in which each framework is imported once. Their temporary folders are to be seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("HF_HUB_OFFLINE", "1")
        with TrainerProcess(folder / "one") as one, TrainerProcess(folder / "other") as other:
            yield one, other


def function(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.syspath_prepend(EXAMPLES)
    if hasattr(adapter_code, name):
        return getattr(adapter_code, name)
    return importlib.import_module(name).train


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_framework_goes_on_from_its_checkpoint_in_another_process(
    trainers, folder, name, monkeypatch
):
    one, other = trainers
    metric, params, stored_alike = FUNCTIONS[name]
    code = function(name, monkeypatch)
    task = {
        "trial": f"s-{list(FUNCTIONS).index(name):04}",
        "params": params,
        "metric": metric,
        "store": f"file://{folder}/store",
    }
    alone = one.carry_out(segment(code, 1, 4, **task))
    assert [m["op"] for m in alone] == ["epoch"] * 4, alone
    moved = other.carry_out(segment(code, 3, 2, fence=2, **task, **known(one, alone[:2])))
    assert [(m["op"], m["epoch"]) for m in moved] == [("epoch", 3), ("epoch", 4)], (
        "no epoch is trained again"
    )
    assert [m["metrics"][metric] for m in moved] == [m["metrics"][metric] for m in alone[2:]]
    if stored_alike:
        assert [m["state_hash"] for m in moved] == [m["state_hash"] for m in alone[2:]]
    for trainer in trainers:
        trainer.say(op="release", trial=task["trial"])
        trainer.carry_out(segment(adapter_code.Tuned, fence=9, trial="s-0999"))
    assert not list(folder.glob("penstock-*")), "its temporary folders are gone"


def test_one_that_was_killed_in_the_middle_of_an_epoch_goes_on_as_if_it_had_not(
    trainers, folder, tmp_path, monkeypatch
):
    one, _ = trainers
    code = function("sklearn_partial_fit", monkeypatch)
    metric, params, _ = FUNCTIONS["sklearn_partial_fit"]
    task = {"trial": "s-0100", "params": params, "metric": metric, "store": f"file://{tmp_path}"}
    alone = one.carry_out(segment(code, 1, 4, **task))
    with TrainerProcess(tmp_path / "log") as victim:
        victim.run(segment(code, 1, 1 << 20, fence=2, **task))
        heard = [*victim.hear_until("epoch"), *victim.hear_until("epoch")]
        victim.process.kill()
        victim.process.wait()
    one.say(op="release", trial="s-0100")
    again = one.carry_out(segment(code, 3, 2, fence=3, **task, **known(victim, heard)))
    assert [m["op"] for m in again] == ["epoch"] * 2
    assert [m["state_hash"] for m in heard + again] == [m["state_hash"] for m in alone]


def test_a_lightning_module_has_the_same_bits_moved_replayed_and_on_two_devices(trainers, tmp_path):
    one, other = trainers
    task = {"trial": "s-0200", "shards": 2, "store": f"file://{tmp_path}"}
    alone = one.carry_out(segment(adapter_code.Tuned, 1, 4, **task))
    assert {"accuracy", "val_error", "loss", "train_loss"} == alone[0]["metrics"].keys()
    assert alone[0]["metrics"]["loss"] == alone[0]["metrics"]["val_error"]
    replayed = other.carry_out(
        segment(adapter_code.Tuned, 3, fence=2, expect=alone[1]["state_hash"], **task)
    )
    assert [m["op"] for m in replayed] == ["replayed", "progress", "progress", "epoch"]
    pair = segment(adapter_code.Tuned, 4, fence=3, expect=replayed[-1]["state_hash"], **task)
    members = [trainer.identity for trainer in trainers]
    for rank, trainer in enumerate(trainers):
        trainer.run(pair.model_copy(update={"rank": rank, "queues": ("cpu.0", "cpu.1")}), members)
    together = [trainer.hear_out()[-1] for trainer in trainers]
    expected = alone[2:] + alone[3:]
    for said, wanted in zip([replayed[-1], *together], expected, strict=True):
        assert (said["epoch"], said["state_hash"]) == (wanted["epoch"], wanted["state_hash"])
        assert said["metrics"] == wanted["metrics"]


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("lightnings_own", {"lr": 0.1, "forget": True}, "trainer.fit(ckpt_path=report.checkpoint)"),
        ("forgets_in_keras", {}, "model.fit(initial_epoch=report.initial_epoch)"),
        ("forgets_in_xgboost", {}, "xgboost.train(xgb_model=report.booster)"),
        ("never_saves_in_huggingface", {}, "save_strategy = 'steps' is refused: allowed is"),
        ("never_saves_in_huggingface", {"folder": "mine"}, "output_dir = 'mine' is refused: allow"),
    ],
)
def test_what_would_begin_anew_or_store_nothing_is_refused_with_what_to_write(
    trainers, tmp_path, monkeypatch, name, params, words
):
    one, other = trainers
    code = function(name, monkeypatch)
    metric = {"lightnings_own": "val_error", "forgets_in_keras": "loss"}.get(name, "train-rmse")
    task = {"trial": "s-0300", "params": params, "store": f"file://{tmp_path}", "metric": metric}
    said = one.carry_out(segment(code, **task))
    if said[-1]["op"] == "epoch":
        said = other.carry_out(segment(code, 2, fence=2, **task, **known(one, said)))
    assert (said[-1]["op"], said[-1]["kind"]) == ("failed", "exception")
    assert words in said[-1]["message"]
    for trainer in trainers:
        trainer.say(op="release", trial="s-0300")


def train(trainable, **params):
    reads = TrackedParams(params)
    code = trainable(reads)
    training = loop.start(code, SharedData().of(code, reads), seed=0, number=0)
    return [loop.run_epoch(training, lambda *_: None).metrics for _ in range(9)]


def test_a_module_learns_and_may_be_made_by_a_method_with_dataloaders_of_its_own():
    made, own = train(adapter_code.Tuned, lr=0.05), train(adapter_code.TunedByMethod, lr=0.05)
    assert made == own
    assert made[-1]["loss"] < made[0]["loss"]


def test_a_hook_is_refused_by_its_name_where_the_class_is_written():
    with pytest.raises(UsageError, match=r"ClipsItself\.configure_gradient_clipping: .*LightningC"):
        type("T", (penstock.LightningTrainable,), {"module": adapter_code.ClipsItself})
    with pytest.raises(
        UsageError, match=r"module = 'Net\(\.\.\.\)' is refused: allowed is a class"
    ):
        type("T", (penstock.LightningTrainable,), {"module": adapter_code.Net()})
    nothing = type("T", (penstock.LightningTrainable,), {})
    with pytest.raises(UsageError, match=r"T\.module = None is refused: allowed is"):
        nothing(TrackedParams({})).data()
    with pytest.raises(UsageError, match=r"datamodule = .*Net.* is refused: allowed is"):
        type("T", (penstock.LightningTrainable,), {"datamodule": adapter_code.Net})


@pytest.mark.parametrize(
    ("module", "data", "words"),
    [
        ("AsksForTheEpoch", "Points", "asks its trainer for current_epoch"),
        ("CountsBatches", "Points", "reads batch_idx"),
        ("SkipsBatches", "Points", "training_step returned None"),
        ("LogsSums", "Points", r"log\('seen', reduce_fx='sum'\)"),
        ("LogsMetricObjects", "Points", "log.'accuracy'. of a Identity"),
        ("TwoOptimizers", "Points", "several optimizers"),
        ("StepsItsSchedule", "Points", "schedule with interval='step'"),
        ("MonitorsWhatIsNotThere", "Points", "'val_acuracy'; those there are: accuracy, val_error"),
        ("Manual", "Points", "Manual.automatic_optimization = False"),
        ("WithoutValidation", "Points", "has no validation_step"),
        ("Net", "Unshuffled", "SequentialSampler, which is not RandomSampler"),
        ("Net", "Weighted", "train_dataloader: WeightedRandomSampler"),
        ("Net", "DropsTheRest", "train_dataloader: drop_last=True"),
        ("Net", "Collates", "val_dataloader: collate_fn"),
        ("Net", "Several", "val_dataloader: list in place of one DataLoader"),
    ],
)
def test_what_penstocks_loop_cannot_do_is_refused_by_its_name(module, data, words):
    names = {"module": getattr(adapter_code, module), "datamodule": getattr(adapter_code, data)}
    with pytest.raises(TrialFailed, match=words) as failed:
        train(type("T", (penstock.LightningTrainable,), names))
    assert failed.value.kind in {"inexact", "metric"}


def test_a_parameter_that_neither_class_takes_is_refused():
    with pytest.raises(UsageError, match="the space has 'rate', which Net nor Points does not"):
        train(adapter_code.Tuned, rate=0.1, batch_size=20)


X = np.random.default_rng(0).normal(size=(90, 5))
WORDS = np.where(X.sum(1) > 0, "up", "down")
ESTIMATORS = [
    (SGDClassifier(average=True, random_state=0), {"classes": ["down", "up"]}),
    (MLPClassifier(hidden_layer_sizes=(4,), random_state=0), {"classes": ["down", "up"]}),
    (MLPClassifier(hidden_layer_sizes=(4,), solver="sgd"), {"classes": ["down", "up"]}),
    (MiniBatchKMeans(n_clusters=3, n_init=1, random_state=0), {}),
    (GaussianNB(), {"classes": ["down", "up"]}),
    (IncrementalPCA(n_components=2), {}),
]


@pytest.mark.parametrize(
    ("estimator", "options"), ESTIMATORS, ids=[str(each) for each, _ in ESTIMATORS]
)
def test_an_estimator_goes_on_from_values_alone(estimator, options):
    def learn(one, times):
        for number in range(times):
            np.random.seed(number)  # as a trainer does at each epoch
            one.partial_fit(X, WORDS, **options)
        return one

    fresh = copy.deepcopy(estimator)
    stored = copy.deepcopy(portable.pack(state_of(learn(estimator, 3))))
    restore(fresh, portable.unpack(stored))
    assert fresh is not estimator
    ends = [state_of(learn(one, 2)) for one in (estimator, fresh)]
    first, second = (state_hash(portable.pack(end)) for end in ends)
    assert first == second


def test_an_attribute_that_cannot_be_stored_is_named_and_no_other_class_is_made():
    estimator = GaussianNB().partial_fit(X, WORDS, classes=["down", "up"])
    estimator.hook_ = print
    with pytest.raises(UsageError, match=r"\['hook_'\] is a builtins\.builtin_function"):
        portable.pack(state_of(estimator))
    with pytest.raises(UsageError, match=r"Birch\.dummy_leaf_ refers to itself .*objective"):
        state_of(Birch().partial_fit(X))
    for name in ("subprocess:Popen", "sklearn.base:os", "sklearn.utils:murmurhash3_32"):
        state = {"a": {"penstock kind": "object", "class": name, "vars": {}}}
        with pytest.raises(UsageError, match="which is not a class of scikit-learn"):
            restore(GaussianNB(), state)


def test_what_is_no_epoch_functions_trial_or_no_such_estimator_is_refused():
    with pytest.raises(UsageError, match=r"write @penstock\.epoch_function above it"):
        penstock.PartialFit(object(), GaussianNB())
    with pytest.raises(UsageError, match="an estimator that has partial_fit"):
        penstock.PartialFit(object(), GaussianNB)
    with pytest.raises(UsageError, match="rounds = 0 is refused"):
        penstock.XGBoostCallback(object(), rounds=0)


def said_by(program, **environment):
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


def test_a_framework_that_is_not_installed_is_told_by_its_extra():
    program = """
import sys
for name in ("keras", "pytorch_lightning", "transformers", "xgboost"):
    sys.modules[name] = None
import penstock
from penstock.app.extensions import BY_NAME
for name, where in BY_NAME.items():
    if not where.startswith("adapters."):
        continue
    try:
        print(name, getattr(penstock, name).__doc__[:12])
    except penstock.UsageError as error:
        print(name, str(error).rpartition(": ")[2])
"""
    assert said_by(program) == [
        "HuggingFaceCallback pip install 'penstock[huggingface]'",
        "KerasCallback pip install 'penstock[keras]'",
        "LightningCallback pip install 'penstock[lightning]'",
        "LightningTrainable pip install 'penstock[lightning]'",
        "PartialFit An estimator",
        "XGBoostCallback pip install 'penstock[xgboost]'",
    ]


def test_a_framework_that_the_users_own_file_misses_is_told_by_its_extra(tmp_path):
    (tmp_path / "study.py").write_text("import pytorch_lightning.callbacks\n")
    program = f"""
import sys
sys.modules["pytorch_lightning"] = None
from pathlib import Path
import penstock
from penstock.app.client.study.script import run_script
from penstock.tasks.process.failure import failure_of
try:
    run_script(Path({str(tmp_path)!r}) / "study.py", [])
except penstock.TrialFailed as error:
    print(error)
try:
    import pytorch_lightning
except ImportError as error:
    print(failure_of(error))
"""
    raised, failed = said_by(program)
    how = "pip install 'penstock[lightning]'"
    assert raised == f"study.py raised ModuleNotFoundError: {how}"
    assert failed.startswith("ModuleNotFoundError: ") and failed.endswith(how)


def test_keras_without_torch_is_refused(tmp_path):
    program = """
import penstock
try:
    penstock.KerasCallback
except penstock.UsageError as error:
    print(error)
"""
    (said,) = said_by(program, KERAS_BACKEND="tensorflow", KERAS_HOME=str(tmp_path))
    assert said.startswith("Keras cannot import its backend (No module named 'tensorflow'): set KE")
