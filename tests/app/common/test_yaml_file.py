"""A YAML file of any bytes is read or refused with its line: study files and workloads alike."""

from __future__ import annotations

import pytest
from penstock.app.common.yaml_file import YamlFile
from penstock.base.errors import UsageError


def test_aliases_and_merged_keys_are_read(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("a: &a {x: no}\nb: [*a , *a ]\nc: {<<: *a, y: 1e-4}\n")
    found = YamlFile(file).values
    assert found["b"] == [{"x": "no"}, {"x": "no"}]
    assert found["c"] == {"x": "no", "y": 1e-4}


def test_aliases_of_aliases_take_no_time(tmp_path):
    file = tmp_path / "study.yaml"
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1} '] * 9)}]" for n in range(1, 30)]
    file.write_text("\n".join(["a0: &a0 [x, x]", *levels]))
    read = YamlFile(file)
    assert "line 28: wrong" in str(read.error(("a29", 8, 8), "wrong"))


def test_an_error_has_the_line_of_its_value_or_of_what_encloses_it(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("a:\n  b:\n    - 1\n    - 2\n  7: {c: 3}\n")
    read = YamlFile(file)
    for key_path, line in (
        (("a", "b", 1), 4),
        (("a", "b", 1, "x"), 4),
        (("a", "b", 9), 2),
        (("a", "7", "c"), 5),
        (("a", "none"), 1),
    ):
        assert str(read.error(key_path, "wrong")) == f"{file}, line {line}: wrong"
    assert str(read.error(("none",), "wrong")) == f"{file}: wrong"


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "- " * 5000], ids=["brackets", "dashes"])
def test_what_is_too_deep_is_refused(tmp_path, text):
    file = tmp_path / "study.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match="is not YAML"):
        YamlFile(file)


def test_a_message_is_short_however_long_the_value_is(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(f"a: {'x' * 500_000}\n")
    read = YamlFile(file)
    with pytest.raises(UsageError, match="not 'xxx") as value:
        read.mapping(("a",), "a", read.values["a"])
    file.write_text(f"? [{'x, ' * 9_000}]\n: 1\n")
    with pytest.raises(UsageError, match="is not a string") as key:
        YamlFile(file).mapping((), "the study")
    assert max(len(str(value.value)), len(str(key.value))) < 3_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2024-99-99", "month must be in 1..12"),
        ("a: " + "1" * 5000, "Exceeds the limit"),
        ("a: \0", "is not YAML"),
        ("a: 1\na: 2", "line 2 is not YAML: found duplicate key"),
        ("a: !!float x", "is not YAML"),
        ("a: \xff", "is not YAML"),
    ],
)
def test_a_value_that_is_none_is_refused(tmp_path, text, words):
    file = tmp_path / "study.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"study\.yaml") as refused:
        YamlFile(file)
    assert words in str(refused.value)
