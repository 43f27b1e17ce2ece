"""Carries out the actions that users start with the forms of pages, as on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...app.client.study.control import Control, drain, undrain
from ...app.extensions import end_of, of_ends
from ...app.ledger.codec import spec_from_json
from ...app.spec.entered import Fields, number, value, whole
from ...app.spec.space import parameter
from ...base.errors import UsageError
from .forms import PARAM

if TYPE_CHECKING:
    from .site import Site


def carry_out(site: Site, fields: Fields) -> str:
    """Carry out the action that a form's ``fields`` ask for, and return a sentence on the result.

    Raises UsageError if the action is unknown or a field is invalid.
    """
    action = fields.get("action", "")
    if does := _ACTIONS.get(action):
        return does(site, fields)
    for actions in of_ends("page", "ACTIONS"):
        if action in actions:
            words: str = actions[action](site.settings, site.reader, fields)
            return words
    raise UsageError.refuse("action", action, f"one of {', '.join(_ACTIONS)}")


def _of_study(act: Callable[[Control, str], str]) -> Callable[[Site, Fields], str]:
    return lambda site, fields: act(site.control, fields.get("study", ""))


def _weight(site: Site, fields: Fields) -> str:
    weight = number(fields, "weight")
    return site.control.set_weight(fields.get("study", ""), weight, whole(fields, "priority"))


def _extend(site: Site, fields: Fields) -> str:
    return site.control.extend(fields.get("study", ""), whole(fields, "by"), None)


def _enqueue(site: Site, fields: Fields) -> str:
    study = site.reader.study(fields.get("study", ""))
    space = dict(spec_from_json(study.spec_json).space or ())
    params = {
        name: value(name, text, parameter(space[name]))
        for field, text in fields.items()
        if field.startswith(PARAM) and text and (name := field.removeprefix(PARAM)) in space
    }
    return site.control.enqueue(study.id, params)


def _of_trial(site: Site, fields: Fields) -> str:
    study = site.reader.study(fields.get("study", ""))
    verb, to = fields.get("verb", ""), fields.get("to", "")
    words: str = end_of("steering", "control", "what a trial's page offers").act(
        site.settings,
        study,
        whole(fields, "n"),
        verb,
        to=whole(fields, "to") if to else None,
        why=fields.get("reason", ""),
    )
    return words


_ACTIONS: dict[str, Callable[[Site, Fields], str]] = {
    "pause": _of_study(Control.pause),
    "resume": _of_study(Control.resume),
    "cancel": _of_study(Control.cancel),
    "weight": _weight,
    "extend": _extend,
    "enqueue": _enqueue,
    "trial": _of_trial,
    "drain": lambda site, fields: drain(site.settings, [fields.get("device", "")]),
    "undrain": lambda site, fields: undrain(site.settings, [fields.get("device", "")]),
}
