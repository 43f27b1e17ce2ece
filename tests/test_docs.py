"""The docs say what is so: their code runs, their commands exist, their tables are the code's."""

import ast
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import optuna
import penstock
import pytest
import torch
from commands import COMMANDS, MISSING
from patience import PATIENCE
from penstock.app import extensions
from penstock.app.cli.terminal import BACKEND, FAILED, USAGE
from penstock.app.extensions import EXTENSIONS
from penstock.app.host.settings import PREFIX, Settings
from penstock.app.spec.options import GROUPS
from penstock.scheduler.model.retry import KINDS
from penstock.scheduler.model.trial import FINAL, TRANSITIONS, TrialState
from penstock.tasks.training import loop

from testkit.measured import Home
from testkit.names import bound_names, words_of
from testkit.package import Package

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
#: With those of groups, as ``devices drain``.
ALL_COMMANDS = COMMANDS | {
    f"{group} {name}": command
    for group, commands in COMMANDS.items()
    for name, command in getattr(commands, "commands", {}).items()
}


def name_of(page):
    return page.relative_to(ROOT).with_suffix("").as_posix()


#: Every fenced block of Python; those marked ``run`` are run, the others only compiled.
BLOCKS = [
    pytest.param(block, ran == " run", id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, (ran, block) in enumerate(
        re.findall(r"^```python( run)?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )
]


def text(name):
    return (ROOT / name).read_text()


def section(page, heading):
    """The text under a heading, up to the next one."""
    _, _, rest = text(page).partition(f"# {heading}\n")
    assert rest, f"{page} has no section {heading}"
    return rest.partition("\n## ")[0]


def rows(page, heading):
    """The cells of the tables in a section, without their head."""
    lines = [line for line in section(page, heading).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells[2:] if not set(row[0]) <= set("-|")]


def coded(cell):
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(("block", "runs"), BLOCKS)
def test_a_block_of_python_does_what_it_says(block, runs, tmp_path, capsys):
    """Run as a module, so without its study; then each objective and trainable gets a trial."""
    compiled = compile(block, "docs", "exec")
    if not runs:
        return
    names = {"__name__": "docs"}
    exec(compiled, names)
    if "objective" in names:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(names["objective"], n_trials=1)
        assert len(study.trials[0].intermediate_values) == 9
    for trainable in names.values():
        if isinstance(trainable, type) and issubclass(trainable, penstock.TorchTrainable):
            one_epoch(trainable)


def one_epoch(trainable):
    code = trainable({"lr": 0.01, "hidden": 8})
    training = loop.start(code, code.data(), seed=0, number=0)
    first = loop.run_epoch(training, lambda *_: None).metrics["loss"]
    for _ in range(3):
        result = loop.run_epoch(training, lambda *_: None)
    assert result.metrics["loss"] < first
    assert {"train_loss", "error"} <= result.metrics.keys()
    assert torch.isfinite(torch.tensor(list(result.metrics.values()))).all()


def test_the_guides_study_file_is_the_example():
    (block,) = re.findall(
        r"^```yaml\n(.*?)^```", text("docs/guide/studies.md"), re.DOTALL | re.MULTILINE
    )
    assert text("examples/digits.yaml").endswith(f"\n\n{block}")


@pytest.mark.integration
def test_the_readmes_example_runs_unchanged(tmp_path):
    """From nothing: broker, scheduler and workers start by themselves."""
    (block,) = re.findall(r"^```python run\n(.*?)^```", text("README.md"), re.DOTALL | re.MULTILINE)
    script = tmp_path / "script.py"
    assert "n_trials=20" in block
    script.write_text(block.replace("n_trials=20", "n_trials=3"))
    env = {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "PENSTOCK_DEVICES": "cpu:1x1"}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "penstock", "run", str(script)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        down = [sys.executable, "-m", "penstock", "down"]
        subprocess.run(down, env=env, capture_output=True, timeout=PATIENCE, check=True)
    assert ran.returncode == 0, ran.stderr
    assert "import penstock" not in block
    assert "run on Penstock's devices" in ran.stderr
    accuracy, params = ran.stdout.split(maxsplit=1)
    assert float(accuracy) > 0.8
    assert "'alpha'" in params


def test_commands_named_in_the_docs_exist():
    named = {
        (program, word)
        for page in PAGES
        for program, word in re.findall(
            r"(?:^    (?:[A-Z_]+=\S+ )?|`)(penstock|make) ([a-z][a-z-]*)", page.read_text(), re.M
        )
    }
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    assert len(named) > 15
    assert {word for program, word in named if program == "penstock"} <= COMMANDS.keys() | MISSING
    assert {word for program, word in named if program == "make"} <= targets


def test_the_reference_has_every_command_and_its_options():
    listed = {
        name: command
        for command, _ in rows(REFERENCE, "Commands")
        for name in re.findall(r"^penstock ([a-z ]*[a-z])", coded(command)[0])
        if name not in MISSING
    }
    # A group that does nothing by itself is there by its commands.
    visible = {
        name
        for name, command in ALL_COMMANDS.items()
        if not command.hidden and getattr(command, "invoke_without_command", True)
    }
    assert listed.keys() == visible - {"devices list", "history list"}, "as without `list`"
    for name, line in listed.items():
        options = {
            o for p in ALL_COMMANDS[name].params if p.param_type_name == "option" for o in p.opts
        }
        assert set(re.findall(r"(?<!\w)--?[a-z]+(?:-[a-z]+)*", line)) <= options, name
        assert ("--json" in line) == ("--json" in options), name


def test_the_reference_has_the_exit_codes():
    codes = {int(code): meaning for code, meaning in rows(REFERENCE, "Exit codes")}
    assert codes.keys() == {0, FAILED, USAGE, BACKEND, 130}


def test_the_reference_has_every_public_name():
    named = {
        name.partition("(")[0]
        for cell, _ in rows(REFERENCE, "Public names")
        for name in coded(cell)
    }
    assert named == set(penstock.__all__)
    study = next(what for cell, what in rows(REFERENCE, "Public names") if cell == "`Study`")
    public = {name for name in dir(penstock.Study) if not name.startswith("_")}
    assert set(coded(study)) == public


def test_the_reference_has_every_option_of_create_study():
    line = next(what for cell, what in rows(REFERENCE, "Public names") if "create_study" in cell)
    arguments = list(inspect.signature(penstock.create_study).parameters)
    assert [name for name in coded(line) if name.isidentifier()] == arguments
    groups = rows(REFERENCE, "Options of a study in groups")
    told = [(coded(option)[0], default.strip("`")) for _, option, default, _ in groups]
    assert sorted(told) == sorted(
        (each.name, str(each.default)) for kind in GROUPS.values() for each in fields(kind)
    )


def test_the_guides_settings_are_the_programs():
    table = {
        coded(variable)[0]: row for variable, *row in rows("docs/guide/settings.md", "Settings")
    }
    assert table.keys() == {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default, allowed, _ = table[f"{PREFIX}{name.upper()}"]
        assert allowed.replace("\\", "") == field.description
        if field.default_factory is None:
            shown = "unset" if field.default is None else f"`{field.default}`"
            assert default == shown, name


def test_the_guide_has_every_kind_of_failure():
    listed = {coded(kind)[0] for kind, _ in rows("docs/guide/failures.md", "When the code fails")}
    assert listed == KINDS.keys()


def test_the_diagram_of_a_trials_life_is_the_table():
    """If it fails, paste the expected diagram into docs/design.md."""
    (drawn,) = re.findall(
        r"^```mermaid\n(.*?)^```",
        section("docs/design.md", "A trial's life"),
        re.DOTALL | re.MULTILINE,
    )
    assert drawn == diagram()


def diagram():
    arrows = {}
    for (before, step), after in TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(step)
    lines = ["stateDiagram-v2", f"    [*] --> {TrialState.PROPOSED}"]
    lines += [f"    {a} --> {b}: {', '.join(steps)}" for (a, b), steps in arrows.items()]
    lines += [f"    {state} --> [*]" for state in TrialState if state in FINAL]
    return "\n".join(lines) + "\n"


def test_the_rooms_have_one_line_each_and_no_other():
    named = [coded(cell) for cell, *_ in rows("docs/rooms.md", "Folder by folder") if coded(cell)]
    folders = [*Package(ROOT).rooms, "examples", "benchmarks", "testkit", "tests", "docs", "deploy"]
    assert sorted(named) == sorted([f"{folder}/"] for folder in folders)


def test_a_room_imports_only_from_rooms_that_are_listed_before_it():
    named = [coded(cell) for cell, *_ in rows("docs/rooms.md", "Folder by folder") if coded(cell)]
    place = {folder.rstrip("/"): at for at, [folder] in enumerate(named)}
    for file, targets in Package(ROOT).graph.items():
        room = file.rpartition("/")[0]
        for target in targets:
            other = target.rpartition("/")[0]
            if room in place and other in place:
                assert place[other] <= place[room], f"{file} imports {target}"


def asks():
    """Yield the function's name, the end and what follows of each call that asks for an end."""
    place = {"of_ends": 0, "names": 0, "end_of": 1}
    for file in (*(ROOT / "app").rglob("*.py"), *(ROOT / "extensions").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                match node.args[place.get(called, len(node.args)) :]:
                    case [ast.Constant(end), *more]:
                        yield called, end, more


def test_each_end_that_is_asked_for_is_told_of_in_the_list_and_in_the_design():
    asked = {end for _, end, _ in asks()}
    assert {"scheduler", "cli", "elsewhere"} <= asked
    assert asked <= {*re.findall(r"``(\w+)``", extensions.__doc__)}
    assert asked <= {*re.findall(r"`(\w+)\.py`", section("docs/design.md", "Extensions"))}


def test_each_file_that_is_an_end_has_something_of_it():
    """A file that is one by chance would be loaded for nothing: the pages' server, once."""
    values, others = defaultdict(set), set()
    for called, end, more in asks():
        match called, more:
            case "of_ends", [ast.Constant(value)]:
                values[end].add(value)
            case ("of_ends", _) | ("end_of", _):  # what is asked for is not in this call
                others.add(end)
    ends = values.keys() - others
    assert {"server", "node", "page"} <= ends
    for end in ends:
        for file in sorted((ROOT / "extensions").glob(f"*/{end}.py")):
            assert values[end] & bound_names(ast.parse(file.read_text())), file


def test_the_design_names_all_extensions():
    named = [coded(cell)[0] for cell, _ in rows("docs/design.md", "Extensions")[-len(EXTENSIONS) :]]
    assert named == [f"extensions/{name}/" for name in EXTENSIONS]


#: The folders where no identifier has a word that the glossary replaces.
GLOSSARY_FOLDERS = ("scheduler", "profiling", "app", "tasks", "base", "wire")


def test_every_module_of_the_glossary_exists():
    modules = [module for row in rows("docs/glossary.md", "Words") for module in coded(row[2])]
    assert len(modules) == len(rows("docs/glossary.md", "Words"))
    assert [module for module in modules if not (ROOT / module).is_file()] == []


def test_words_that_the_glossary_replaces_name_nothing():
    replaced = {word for row in rows("docs/glossary.md", "Words") for word in coded(row[3])}
    assert replaced
    files = [file for folder in GLOSSARY_FOLDERS for file in (ROOT / folder).rglob("*.py")]
    found = [
        f"{name} in {file.relative_to(ROOT)}"
        for file in files
        for name in (file.stem, *bound_names(ast.parse(file.read_text())))
        if not replaced.isdisjoint(words_of(name))
    ]
    assert found == []


def test_words_are_found_in_names_of_every_kind():
    code = "class DraftPlan:\n    spot: int\ndef f(a, *, wish): wanted_n = lambda drawn: a.course\n"
    names = bound_names(ast.parse(code))
    assert names == {"DraftPlan", "f", "a", "wish", "wanted_n", "drawn"}  # no field, no attribute
    assert words_of("DraftPlan") == ["draft", "plan"]
    assert words_of("_HTTPServer_n2") == ["http", "server", "n2"]


def test_the_page_of_figures_and_all_that_quote_them_agree_with_the_kept_results():
    """``python -m benchmarks.measured`` makes them again."""
    home = Home()
    assert home.disagreeing() == []
    assert home.unknown() == []
    assert len(home.page().encode()) <= 25_000


def test_each_figure_of_the_readme_is_quoted_from_the_kept_results():
    figures = rows("README.md", "Five figures")
    assert len(figures) == 5
    for what, *cells in figures:
        assert "](docs/measured.md#" in what
        unquoted = re.sub(r"<!--[\w.:%-]+-->.*?<!--/-->", "", " ".join(cells))
        assert re.findall(r"\d+", unquoted) == []


def test_the_readme_is_one_screen():
    assert len(text("README.md").splitlines()) <= 95


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    links = r"\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\""
    for target in map("".join, re.findall(links, page.read_text())):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        assert place.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE)
            assert anchor in {slug(head) for head in heads}, target


def slug(head):
    """As GitHub makes an anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")


REFERENCE = "docs/reference.md"


def test_optunas_public_api_is_in_the_table_and_the_table_is_what_the_tests_show():
    """A name that a newer Optuna adds: cover it in a test, or say there that it is not tried."""
    api = runpy.run_path(str(ROOT / "docs" / "optuna_api.py"))
    found = [mark for _, group in api["marks"]() for mark in group]
    covered = [name for mark in found for name in mark.args]
    public = api["public_names"]()
    assert public - set(covered) == set()
    owners = ("Study.", "Trial.", "FrozenTrial.", "optuna.")
    assert {name for name in covered if name.startswith(owners)} - public == {"Trial.report(nan)"}
    assert sorted(set(covered)) == sorted(covered), "each name has one line"
    assert {mark.kwargs["shows"] for mark in found} == set(api["WORDS"])
    current = f"{api['BEGIN']}\n{api['table']()}\n{api['END']}"
    assert current in text("docs/optuna-api.md"), "python docs/optuna_api.py makes it anew"
