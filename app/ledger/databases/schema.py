"""What a reader knows of the tables without SQLAlchemy, which takes longer to import than to read.

``tables`` defines all of them.
"""

from __future__ import annotations

#: The migration whose result is exactly the tables of ``tables``.
HEAD = "0015"

#: The columns of ``tables.STUDY``, in order.
STUDY_COLUMNS = (
    "id",
    "name",
    "status",
    "created_at",
    "finished_at",
    "message",
    "spec",
    "spent",
    "summary",
    "digest",
)
