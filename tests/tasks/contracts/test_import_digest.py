"""The digest of all that training code imports: what changes it, and what does not."""

import pytest
from penstock.base.errors import BackendError
from penstock.tasks.contracts.import_digest import IMPORTS, import_digest

FILES = {
    "train.py": "import helper\nfrom lib.nets import Net\n\n\ndef f():\n    import late\n",
    "helper.py": "from lib import sizes\n",
    "late.py": "X = 1\n",
    "lib/__init__.py": "",
    "lib/nets.py": "from . import sizes\nfrom .deep.blocks import Block\n",
    "lib/sizes.py": "N = 3\n",
    "lib/deep/__init__.py": "",
    "lib/deep/blocks.py": "from ..other import Y\n",
    "lib/other.py": "Y = 2\n",
    "lib/unused.py": "Z = 3\n",
    "unused.py": "Z = 3\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digest(folder, file="train.py", module=""):
    return import_digest(folder / file, module, str(folder))


@pytest.mark.parametrize("name", [name for name in FILES if "unused" not in name])
def test_every_module_of_the_users_that_is_imported_counts(folder, name):
    before = digest(folder)
    assert before.startswith(IMPORTS)
    (folder / name).write_text(FILES[name] + "# edited\n")
    assert digest(folder) != before
    (folder / name).write_text(FILES[name])
    assert digest(folder) == before


@pytest.mark.parametrize("name", ["unused.py", "lib/unused.py"])
def test_what_is_not_imported_does_not_count(folder, name):
    before = digest(folder)
    (folder / name).write_text("edited")
    assert digest(folder) == before


def test_a_relative_import_of_the_code_itself_is_followed(folder):
    before = digest(folder, "lib/nets.py", "lib.nets")
    (folder / "lib/other.py").write_text("Y = 3\n")
    assert digest(folder, "lib/nets.py", "lib.nets") != before


def test_an_installed_package_counts_with_its_version_and_with_what_it_requires(
    folder, monkeypatch
):
    from importlib import metadata

    (folder / "helper.py").write_text("import optuna\n")
    real, versions = metadata.distribution, {}

    def distribution(name):
        found = real(name)
        if name in versions:
            found = type("Found", (), {"version": versions[name], "requires": found.requires or []})
        return found

    monkeypatch.setattr(metadata, "distribution", distribution)
    before = digest(folder)
    for name in ("optuna", "sqlalchemy"):  # the second is required by the first
        versions[name] = "0.0.1"
        assert digest(folder) != before
        versions.clear()
    versions["pytest"] = "0.0.1"
    assert digest(folder) == before, "nothing here needs it"


def test_the_same_code_elsewhere_is_the_same(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for name, text in FILES.items():
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(text)
    assert digest(other) == digest(folder)


def test_a_node_whose_imports_differ_refuses_the_code(folder, workspace):
    (folder / "train.py").write_text("import helper\n\n\nclass Net:\n    pass\n")
    target, path = f"{folder / 'train.py'}:Net", str(folder)
    expected = digest(folder)
    assert workspace.load("s-1", target, path, expected).__name__ == "Net"
    (folder / "helper.py").write_text("from lib import sizes  # edited\n")
    with pytest.raises(BackendError, match=r"or what it imports .* differs on this node"):
        workspace.load("s-2", target, path, expected)
