"""Find the changes when a study is submitted again, in terms of the user's arguments."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from ...scheduler.model.study import Code, StrategySpec, StudySpec
from ...tasks.contracts.by_value import PREFIX, is_by_value
from .options import option_paths
from .space import parameter

#: Fields of ``StudySpec`` that ``differences`` does not compare directly. The fields in the first
#: group may differ: the number of trials and the observations (both may grow), weight, priority,
#: the rules for giving up (studies of older versions have none), the script's command line and
#: folder, notified addresses and tasks, a sampler's pickle, and ``system_fixed``, which follows
#: from other fields. The fields in the second group are compared in other ways.
_NO_CHANGE = {
    *(
        "n_trials",
        "observations",
        "weight",
        "priority",
        "fail_early",
        "evidence",
        "argv",
        "cwd",
        "tools",
        "system_fixed",
        "notify",
        "on_end",
        "on_error",
    ),
    *("code", "strategy", "space"),
}
#: The names in ``create_study``, for those fields of ``StudySpec`` that have another name there.
_PATHS = {name: ".".join(path) for name, path in option_paths().items()} | {
    "system": "system",
    "sampler_options": "the sampler's options",
}


def differences(old: StudySpec, new: StudySpec) -> list[str]:
    """Return the differences between ``old`` and ``new``, each as ``seed was 0 and is 4``.

    An edited source file is no difference, unless other studies may reuse the study's epochs (the
    study has a data token). The system mode ``reuse`` in place of ``off`` is no difference either,
    since older versions stored ``off`` for studies without tuning.
    """
    if (old.system, new.system) == ("off", "reuse"):
        new = replace(new, system=old.system)
    changed = _pairs(_plain(old), _plain(new))
    if not _same_code(old.code, new.code):
        changed += _pairs({"code": old.code.target}, {"code": new.code.target})
    elif old.data_token and old.code.digest != new.code.digest:
        changed.append("the code or what it imports has changed, and has a data token")
    changed += _pairs(_strategy(old.strategy), _strategy(new.strategy))
    if (old.space is None) != (new.space is None):
        origin = {True: "said by the objective", False: "given to optimize()"}
        return [
            *changed,
            f"space was {origin[old.space is None]} and is {origin[new.space is None]}",
        ]
    before, after = ({f"space[{n!r}]": t for n, t in spec.space or ()} for spec in (old, new))
    return changed + _pairs(
        {name: str(parameter(text)) for name, text in before.items()},
        {name: str(parameter(text)) for name, text in after.items()},
    )


def as_edited(known: StudySpec, spec: StudySpec) -> StudySpec:
    """Return ``spec`` with the edits that users have made to the study ``known`` since.

    ``spec`` is the specification of a study that a script submits again.
    """
    edits = known.edits
    if edits is None:
        return spec
    own = {name: getattr(known, name) for name in edits.fields if name != "max_epochs"}
    if "max_epochs" in edits.fields:
        own["strategy"] = replace(spec.strategy, max_epochs=known.strategy.max_epochs)
    space = dict(spec.space or ())
    space |= {name: text for name, text in known.space or () if name in edits.parameters}
    return replace(spec, edits=edits, space=spec.space and tuple(space.items()), **own)


def _plain(spec: StudySpec) -> dict[str, Any]:
    names = [f.name for f in fields(StudySpec) if f.name not in _NO_CHANGE]
    return {_PATHS.get(name, name): getattr(spec, name) for name in names}


def _same_code(old: Code, new: Code) -> bool:
    """Return True if both references mean the same object.

    The object is the same if both the target and the path are equal. The object is also the same if
    the name in the file and the digest of the file are equal. So a file may be moved, and may be
    run as a script (by path) or imported (by module).

    Code by value is the same if the code and its module or script have the same names. The pickles
    themselves are not compared, since two pickles of one function differ. A study may go on with an
    edited function, whether the function is sent by name or by value.
    """
    if is_by_value(old.target) or is_by_value(new.target):
        return _named(old.target) == _named(new.target)
    if (old.target, old.path) == (new.target, new.path):
        return True
    names = [code.target.rpartition(":")[2] for code in (old, new)]
    return names[0] == names[1] and old.digest == new.digest


def _named(target: str) -> tuple[str, str]:
    """Split ``target`` into the name of its module or script and the name of the code.

    The name of a script is returned without its folders.
    """
    module, _, name = target.removeprefix(PREFIX).rpartition(":")
    return re.sub(r"\.py$", "", module.rpartition("/")[2]), name


def _strategy(plan: StrategySpec) -> dict[str, Any]:
    settings = {f"strategy's {f.name}": getattr(plan, f.name) for f in fields(plan)}
    settings["strategy"] = settings.pop("strategy's name")
    return settings


def _pairs(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    names = [*old, *(name for name in new if name not in old)]
    return [
        f"{name} was {_words(old.get(name))} and is {_words(new.get(name))}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _words(value: Any) -> str:
    """Return the value of a setting as a user writes it."""
    if value is None or value in ((), "", "{}"):
        return "not given"
    if isinstance(value, tuple):
        return ", ".join(map(_words, value))
    if hasattr(value, "__dataclass_fields__"):
        return " ".join(_words(getattr(value, f.name)) for f in fields(value))
    return str(value)
