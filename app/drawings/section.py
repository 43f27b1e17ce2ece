"""A section of a study's report, as an extension makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .charts import Figure

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Section:
    """The section's HTML, and its charts by the names of their places in it."""

    html: Markup
    charts: dict[str, Figure | None] = field(default_factory=dict)
