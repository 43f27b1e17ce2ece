"""The forms that control studies and devices. ``actions`` does what they ask for."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ...app.spec.amounts import HIGHEST, LOWEST, MAX_PRIORITY
from ...app.spec.space import Categorical, parameter

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow
    from ...app.views.devices import Facts
    from ...scheduler.model.study import StudySpec

#: Before the name of a parameter in the form that enqueues a configuration.
PARAM = "param."
#: The most trials that the form adds to a study at once.
MOST = 10**6


def study_forms(study: StudyRow, spec: StudySpec) -> str:
    """What can be done to ``study`` as it stands."""
    to = {"study": study.id}
    over = study.finished_at is not None
    found = []
    if not over:
        paused = study.status == "paused"
        found.append(_form("resume" if paused else "pause", to))
        found.append(_form("cancel", to, ask=f"Cancel {study.name}? Its results so far stay."))
        found.append(
            _form(
                "weight",
                to,
                _number("weight", study.weight, LOWEST, HIGHEST),
                _number("priority", study.priority, -MAX_PRIORITY, MAX_PRIORITY),
            )
        )
    if study.contract != "ask":
        found.append(_form("extend", to, _number("by", 1, 1, MOST, words="more trials")))
    forms = f'<div class="forms">{"".join(found)}</div>'
    if over or spec.local or spec.space is None:
        return forms
    fields = [_parameter(name, text) for name, text in spec.space]
    return (
        f"{forms}<details><summary>Enqueue a configuration</summary>"
        f"{_form('enqueue', to, *fields, words='What is left empty is drawn.')}</details>"
    )


def drain_form(facts: Facts) -> str:
    """What can be done to a device: taken out, or given back."""
    back = facts["state"] in ("draining", "drained")
    return _form("undrain" if back else "drain", {"device": facts["name"]})


def _form(action: str, hidden: dict[str, str], *fields: str, words: str = "", ask: str = "") -> str:
    inputs = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in {"action": action, **hidden}.items()
    )
    confirm = f' data-ask="{escape(ask)}"' if ask else ""
    return (
        f'<form method="post" action="act"{confirm}>{inputs}{"".join(fields)}'
        f"{words and f'<p>{words}</p>'}<button>{action}</button></form>"
    )


def _number(name: str, value: float, low: float, high: float, *, words: str = "") -> str:
    step = "1" if isinstance(value, int) else "any"
    return (
        f'<label>{words or name} <input type="number" name="{name}" value="{value:g}"'
        f' min="{low:g}" max="{high:.0f}" step="{step}" required></label>'
    )


def _parameter(name: str, text: str) -> str:
    given = parameter(text)
    field = escape(PARAM + name)
    if isinstance(given, Categorical):
        options = "".join(
            f'<option value="{index}">{escape(str(choice))}</option>'
            for index, choice in enumerate(given.choices)
        )
        entry = f'<select name="{field}"><option value=""></option>{options}</select>'
    else:
        hint = escape(f"{given.low} to {given.high}")
        entry = f'<input name="{field}" inputmode="decimal" placeholder="{hint}">'
    return f"<label>{escape(name)} {entry}</label>"
