"""A study's YAML file: what is wrong is refused with file, line and key, and nothing is started."""

import json
import sys
import textwrap

import pytest
from penstock import ASHA, Limits, Resources, Sampler, Share, SystemTuning
from penstock.app.cli.main import app
from penstock.app.client.study import study_file
from penstock.app.client.study.handle import running
from penstock.app.client.study.study_file import _STRATEGIES
from penstock.app.ledger.codec import spec_from_json
from penstock.app.spec import strategies
from penstock.app.spec.build import make_plan
from penstock.app.spec.plan import StudyPlan
from penstock.app.spec.space import Float, parse_space
from penstock.scheduler.model.study import Condition, StrategySpec
from servers.fake_scheduler import FakeScheduler
from typer.testing import CliRunner

CODE = """
import penstock

class Net(penstock.TorchTrainable):
    batch_size = 8

def objective(trial):
    return 1.0

"""
STUDY = """\
    # a study
    code: train.py:objective
    study_name: mine
    n_trials: 4
    strategy:
      ASHA: {max_epochs: 9, eta: 3}
    space:
      lr:
        Float: {low: 1e-4, high: 0.1, log: true}
      hidden: [8, 16]
"""


@pytest.fixture
def submit(tmp_path):
    """Submits a YAML file of this text; what the command prints to standard error."""
    (tmp_path / "train.py").write_text(CODE)
    file = tmp_path / "study.yaml"

    def submit(text, *arguments, status=2):
        file.write_text(textwrap.dedent(text))
        env = {"PENSTOCK_HOME": str(tmp_path / "home")}
        result = CliRunner(env=env).invoke(app, ["submit", str(file), *arguments])
        assert result.exit_code == status, result.output
        assert not (tmp_path / "home").exists(), "nothing was started"
        return result.stderr.replace(str(file), "study.yaml").replace(str(tmp_path), "HERE")

    yield submit
    sys.modules.pop("penstock_script_train", None)  # each test has its own, as each command has


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "n_trials",
            "n_trails",
            "line 4: n_trails is not a key of the study: did you mean",
        ),
        ("study_name: mine", "code: x.py:f", 'line 3 is not YAML: found duplicate key "code"'),
        ("study_name: mine", "1: x", "line 3: the key 1 is not a string: quote it"),
        (
            "study_name: mine",
            "show_progress: true",
            "line 3: show_progress is not a key of",
        ),
        (
            "study_name: mine",
            "direction: up",
            "line 3: direction = 'up' is refused: allowed is min",
        ),
        ("study_name: mine", "seed: 1.5", "line 3: seed = 1.5 is refused: allowed is a whole"),
        ("study_name: mine", "load_if_exists: no", "line 3: load_if_exists = 'no' is refused"),
        pytest.param(
            "study_name: mine",
            "environment: venv:x",
            "line 3: environment = 'venv:x' is refused: ",
            marks=pytest.mark.extension("environments"),
        ),
        ("study_name: mine", "timeout: -1", "line 3: timeout = -1 is refused"),
        ("study_name: mine", "directions: [minimize, up]", "line 3: directions[1] = 'up' is ref"),
        (
            "study_name: mine",
            "constraints: {ms: fast}",
            "line 3: constraints['ms'] = 'fast' is ref",
        ),
        (
            "hidden: [8, 16]",
            "hidden:\n        Int: {low: 8, high: 16, when: {act: relu}}",
            "line 10: space['hidden'].when = 'act' is refused: allowed is the name of a list",
        ),
        (
            "study_name: mine",
            "sampler:\n  tpe:\n    n_startup_trials: 1\n    multi: true",
            "line 6: sampler.multi = True is refused",
        ),
        ("study_name: mine", "sampler: {tpe: 3}", "line 3: tpe is a mapping of names to values"),
        (
            "study_name: mine",
            "sampler: {tpo: {}}",
            "line 3: tpo is not a key of sampler: did you mean",
        ),
        (
            "study_name: mine",
            "resources: 8",
            "line 3: resources = 8 is refused: allowed is None or",
        ),
        (
            "study_name: mine",
            "resources:\n  shards: 4\n  max_width: 8",
            "line 5: resources.max_width = 8 is refused: allowed is 1 to the number of shards, 4",
        ),
        (
            "study_name: mine",
            "limits:\n  retries: 1\n  epoch_timout: 3",
            "line 5: epoch_timout is not a key of limits: did you mean epoch_timeout?; allowed is",
        ),
        (
            "study_name: mine",
            "limits: {epoch_timeout: 1m}",
            "line 3: limits.epoch_timeout = '1m' is refused: allowed is seconds above 0, or None",
        ),
        pytest.param(
            "study_name: mine",
            "system: {mode: off, knobs: [threads]}",
            "line 3: system.knobs = ['threads'] is refused: allowed is None with mode=\"off\"",
            marks=pytest.mark.extension("system_tuning"),
        ),
        pytest.param(
            "study_name: mine",
            "limits: {device_hours: 2, deadline: -1}",
            "line 3: limits.deadline = -1 is refused: allowed is seconds above 0 since",
            marks=pytest.mark.extension("limits"),
        ),
        ("study_name: mine", "share: {weight: 0}", "line 3: share.weight = 0 is refused"),
        (
            "study_name: mine",
            "max_width: 8",
            "line 3: max_width is not a key of the study: write max_width in resources",
        ),
        ("n_trials: 4", "", "study.yaml: n_trials is missing: n_trials = None is refused"),
        ("n_trials: 4", "n_trials: 0", "line 4: n_trials = 0 is refused: allowed is a whole"),
        ("code: train.py:objective", "", "study.yaml: code is missing"),
        ("train.py:objective", "train.py", "line 2: code = 'train.py' is refused: allowed is file"),
        (
            "train.py:objective",
            "tain.py:f",
            "line 2: code = 'tain.py:f' is refused: there is no fi",
        ),
        ("train.py:objective", "train.py:objectiv", "has no objectiv: did you mean objective?"),
        ("train.py:objective", "nowhere.at:f", "there is no module nowhere.at, in HERE or install"),
        (
            "train.py:objective",
            "train.py:penstock",
            "line 2: the first argument of optimize = <mod",
        ),
        (
            "train.py:objective",
            "train.py:Net",
            "study.yaml: metric is missing: HERE/train.py:Net is",
        ),
        (
            "ASHA:",
            "Asha:",
            "line 6: Asha is not a key of strategy: did you mean ASHA?; allowed is Full",
        ),
        (
            "max_epochs: 9",
            "epochs: 9",
            "line 6: epochs is not a key of ASHA: did you mean min_epochs?; allowed",
        ),
        ("max_epochs: 9, ", "", "line 6: ASHA needs max_epochs; it takes max_epochs, min_epochs,"),
        (
            "eta: 3",
            "eta: 1",
            "line 6: strategy: ASHA.eta = 1 is refused: allowed is a whole number",
        ),
        pytest.param(
            "ASHA: {max_epochs: 9, eta: 3}",
            "OneShot: {batches: 3}",
            "line 6: OneShot needs supernet; it takes supernet, trial, batches",
            marks=pytest.mark.extension("nas"),
        ),
        pytest.param(
            "ASHA: {max_epochs: 9, eta: 3}",
            "OneShot:\n    batches: 3\n    supernet: super",
            "line 8: strategy: OneShot.supernet = 'super' is refused: nothing has run here yet",
            marks=pytest.mark.extension("nas"),
        ),
        pytest.param(
            "ASHA: {max_epochs: 9, eta: 3}",
            "OneShot: {supernet: 3}",
            "line 6: strategy: OneShot.supernet = 3 is refused: allowed is a study that has",
            marks=pytest.mark.extension("nas"),
        ),
        pytest.param(
            "ASHA: {max_epochs: 9, eta: 3}",
            "OneShot: {supernet: super,\n batches: 0}",
            "line 7: strategy: OneShot.batches = 0 is refused",
            marks=pytest.mark.extension("nas"),
        ),
        ("ASHA: {max_epochs: 9, eta: 3}", "9", "line 5: strategy is a mapping of names to values"),
        ("ASHA: {max_epochs: 9, eta: 3}", "ASHA: 9", "line 6: ASHA is a mapping of names to val"),
        ("ASHA: {max", "PASHA: {}\n  ASHA: {max", "line 5: strategy is one name with its arg"),
        ("Float:", "Flaot:", "line 9: Flaot is not a key of space.lr: did you mean Float?"),
        (
            "high: 0.1",
            "high: 1e-5",
            "line 9: space.lr: Float.high = 1e-05 is refused: allowed is a",
        ),
        ("high: 0.1", "high: x", "line 9: space.lr: Float.high = 'x' is refused"),
        ("log: true", "log: yes", "line 9: space.lr: Float.log = 'yes' is refused"),
        ("[8, 16]", "0.5", "line 10: space['hidden'] = 0.5 is refused: allowed is Float"),
        ("[8, 16]", "[8,\n   8]", "line 11: space.hidden: Categorical.choices[1] = 8"),
        ("[8, 16]", "[2020-01-01]", "line 10: space.hidden: Categorical.choices[0] = datetime"),
        ("[8, 16]", "{Steps: {6: [8]}}", "space.hidden: the keys of Steps = [6] is refused"),
        ("[8, 16]", "{Steps: {0: [8], -1: [8]}}", "line 10: space.hidden: a key of Steps = -1 is"),
        ("[8, 16]", "{Steps: {0: [8], six: [8]}}", "line 10: six is not a key of Steps: a whole"),
        ("[8, 16]", "{Steps: {0: 8}}", "line 10: space.hidden: Steps[0] = 8 is refused: allowed"),
        ("[8, 16]", "{Steps: {0: [8],\n 6: {Int: {low: 8}}}}", "line 11: Int needs high; it ta"),
        ("[8, 16]", "{Int: {0: 8}}", "line 10: the key 0 is not a string: quote it"),
        ("[8, 16]", "{Steps: {0: [8]}}", "line 10: space['hidden'] = Steps("),
        ("[8, 16]", "[8, 16", "is not YAML: expected ',' or ']'"),
        ("[8, 16]", "!!python/name:os.system x", "line 10 is not YAML: could not determine a con"),
        (
            "[8, 16]",
            "&a [*a]",
            "line 10: space.hidden: Categorical.choices[0] = [[...]] is",
        ),
        ("# a study", "- a", "is not YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_key(submit, old, new, words):
    text = textwrap.dedent(STUDY)
    assert text.count(old) >= 1
    said = submit(text.replace(old, textwrap.dedent(new), 1))
    assert said.startswith("penstock: study.yaml")
    assert words in said


@pytest.mark.parametrize("text", ["", "# nothing", "- a\n- b", "just words"])
def test_a_file_that_holds_no_study_is_refused(submit, text):
    assert "study.yaml: the study is a mapping of names to values, not" in submit(text)


def test_an_objective_that_raises_when_imported_is_shown_with_its_own_frames(submit, tmp_path):
    (tmp_path / "broken.py").write_text("def f():\n    raise KeyError('mine')\nf()\n")
    said = submit(STUDY.replace("train.py", "broken.py"), status=1)
    assert said.endswith("penstock: broken.py raised KeyError\n")
    files = [line for line in said.splitlines() if line.startswith("  File")]
    assert len(files) == 2
    assert all("HERE/broken.py" in line for line in files)


def test_a_file_takes_no_arguments_and_must_be_there(submit, tmp_path):
    assert "it takes no arguments such as 'x'" in submit(STUDY, "x")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "none.yml")])
    assert result.exit_code == 2
    assert "there is no file" in result.stderr


def test_every_strategy_can_be_named():
    public = {name for name in vars(strategies) if name[0].isupper()}
    made = {name for name in public if callable(getattr(strategies, name))}
    assert set(_STRATEGIES) == made - {"Sequence", "StrategySpec", "UsageError"}
    assert isinstance(_STRATEGIES["FullBudget"](), StrategySpec)


@pytest.mark.extension("system_tuning")
def test_a_files_groups_and_sampler_are_those_of_the_call(tmp_path, settings, started):
    (tmp_path / "train.py").write_text(CODE)
    file = tmp_path / "study.yaml"
    file.write_text(GROUPED)
    with FakeScheduler(settings) as scheduler, running(detach=True):
        study_file.run_study_file(file)
    sys.modules.pop("penstock_script_train", None)
    (submit,) = scheduler.commands
    spec = spec_from_json(json.dumps(submit["study"]))
    assert spec.space == parse_space({"kind": ["a", "b"], "lr": [0.1, 0.2], "lr@3": Float(0, 1)})
    assert spec.conditions == tuple(Condition(name, "kind", ("a",)) for name in ("lr", "lr@3"))
    assert StudyPlan.of(spec) == make_plan(
        metric="loss",
        sampler=Sampler("tpe", n_startup_trials=5),
        strategy=ASHA(max_epochs=9),
        resources=Resources(max_width=2, exactness="statistical", on_signature_change="record"),
        limits=Limits(retries=1),
        system=SystemTuning("tune", probing="bandit"),
        share=Share(weight=2),
    )


GROUPED = """
code: train.py:Net
n_trials: 4
metric: loss
strategy: {ASHA: {max_epochs: 9}}
space:
  kind: [a, b]
  lr:
    Steps:
      when: {kind: a}
      3: {Float: {low: 0, high: 1}}
      0: [0.1, 0.2]
sampler: {tpe: {n_startup_trials: 5}}
resources: {max_width: 2, exactness: statistical}
limits: {retries: 1}
system: {mode: tune, probing: bandit}
share: {weight: 2}
"""
