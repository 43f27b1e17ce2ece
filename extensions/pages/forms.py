"""Returns the forms with which users control studies and devices.

The module ``actions`` carries out the actions that the forms send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...app.spec.amounts import HIGHEST, LOWEST, MAX_PRIORITY
from ...app.spec.space import parameter
from .pieces import part

if TYPE_CHECKING:
    from markupsafe import Markup

    from ...app.ledger.rows import StudyRow
    from ...app.show.views.devices import Facts
    from ...scheduler.model.study import StudySpec

#: The prefix of a parameter's name in the form that enqueues a configuration.
PARAM = "param."
#: The most trials that the form adds to a study at once.
MOST = 10**6
BOUNDS = {"lowest": LOWEST, "highest": HIGHEST, "priority": MAX_PRIORITY, "trials": MOST}


def study_forms(study: StudyRow, spec: StudySpec) -> Markup:
    """Return the forms of the actions that are possible for ``study`` in its present state."""
    closed = study.finished_at is not None or spec.local
    space = [
        (name, PARAM + name, parameter(text)) for name, text in (() if closed else spec.space or ())
    ]
    return part("study_forms.html", study=study, space=space, bounds=BOUNDS)


def drain_form(facts: Facts) -> Markup:
    """Return the form that drains a device, or puts a drained device back into use."""
    back = facts["state"] in ("draining", "drained")
    return part("drain_form.html", action="undrain" if back else "drain", device=facts["name"])
