"""Modules by ``penstock run -m``: which file is found."""

from penstock.app.client.study.script import source_of


def test_the_file_of_a_module_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "seldom_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert source_of("seldom_package.train") == package / "train.py"
    for name in ("seldom_package", "seldom_package.absent", "seldom_package.train.more", "no_such"):
        assert source_of(name) is None
    (package / "__main__.py").touch()
    assert source_of("seldom_package") == package / "__main__.py"
