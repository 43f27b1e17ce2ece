"""A YAML file of any bytes is read or refused at once: study files and workloads alike."""

from __future__ import annotations

import time

import pytest
from penstock.app.common.yaml_file import ALLOWED, MAX_BYTES, MAX_DEPTH, MAX_VALUES, YamlFile
from penstock.profiling.base.errors import UsageError


def bomb(first: str, each: str, levels: int) -> str:
    """Each level names the one before nine times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, levels):
        body = each.join([f"*a{level - 1} "] * 9)
        lines.append(f"a{level}: &a{level} [{body}]")
    return "\n".join(lines)


def mapping_bomb(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        body = ", ".join(f"k{n}: *a{level - 1} " for n in range(9))
        lines.append(f"a{level}: &a{level} {{{body}}}")
    return "\n".join(lines)


TOO_MUCH = {
    "aliases of aliases": bomb("[x, x]", ", ", 10),
    "aliases of aliases, in mappings": mapping_bomb(10),
    "an alias of itself": "a: &a [*a]",
    "many values": f"a: [{'1, ' * (MAX_VALUES + 1)}]",
    "many keys": "".join(f"k{n}: 1\n" for n in range(MAX_VALUES + 1)),
    "many bytes": "#" * (MAX_BYTES + 1),
    "deep, in brackets": "[" * 2000 + "]" * 2000,
    "deep, by indentation": "".join("  " * n + "a:\n" for n in range(MAX_DEPTH + 2)),
    "deep, by dashes": "- " * 5000,
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_is_too_much_is_refused_at_once_with_what_is_allowed(tmp_path, what):
    file = tmp_path / "study.yaml"
    file.write_text(TOO_MUCH[what])
    began = time.thread_time()
    with pytest.raises(UsageError) as refused:
        YamlFile(file)
    assert time.thread_time() - began < 1.0 * 5  # a second on an idle core
    assert ALLOWED in str(refused.value)


def test_what_is_allowed_is_read(tmp_path):
    file = tmp_path / "study.yaml"
    values = ", ".join(["1e-4"] * (MAX_VALUES // 2))
    deep = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    file.write_text(f"a: &a {{x: no}}\nb: [*a , *a ]\nc: [{values}]\nd: {deep}\n")
    found = YamlFile(file).values
    assert found["b"] == [{"x": "no"}, {"x": "no"}]
    assert found["c"][-1] == 1e-4


def test_a_message_is_short_however_long_the_value_is(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(f"a: {'x' * 500_000}\n")
    read = YamlFile(file)
    with pytest.raises(UsageError, match="not 'xxx") as value:
        read.mapping(("a",), "a", read.values["a"])
    file.write_text(f"? [{'x, ' * 9_000}]\n: 1\n")
    with pytest.raises(UsageError, match="is not a string") as key:
        YamlFile(file)
    assert max(len(str(value.value)), len(str(key.value))) < 3_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2024-99-99", "line 2: month must be in 1..12"),
        ("a: " + "1" * 5000, "line 1: Exceeds the limit"),
        ("a: \0", "is not YAML"),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_line(tmp_path, text, words):
    file = tmp_path / "study.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"study\.yaml") as refused:
        YamlFile(file)
    assert words in str(refused.value)
