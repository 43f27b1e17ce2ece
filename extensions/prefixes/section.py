"""The report's section on the epochs that trials have in common, with the tree of them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .picture import tree_picture
from .view import count_words, facts_in_words

if TYPE_CHECKING:
    from .common import StudyPrefixes


def section(found: StudyPrefixes) -> str:
    """The section as HTML; empty for a study whose trials have no epochs in common."""
    if found.obstacle or found.epochs.total == found.epochs.distinct:
        return ""
    lead = f"{count_words(found)}. A bar is a run of epochs, thick where several trials have them."
    facts = "".join(f"<p>{escape(words)}.</p>" for words in facts_in_words(found))
    return (
        '<section id="prefixes"><div class="head"><h2>Epochs in common</h2>'
        f"<p>{escape(lead)}</p></div>{facts}{tree_picture(found.edges)}</section>"
    )
