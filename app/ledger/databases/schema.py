"""Facts about the tables for readers that avoid SQLAlchemy, which is slow to import.

The module ``tables`` defines the tables.
"""

from __future__ import annotations

#: The number of the schema that the module ``tables`` defines.
HEAD = "0017"

#: The columns of some tables, in the order of the table's definition.
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
TRIAL_COLUMNS = (
    "id",
    "study",
    "number",
    "state",
    "params",
    "epoch",
    "target",
    "value",
    "device",
    "slot",
    "members",
    "created_at",
    "finished_at",
    "failure_kind",
    "failure_message",
    "failure_traceback",
    "dispatched_at",
    "further",
    "constraints",
    "system",
    "origin_trial",
    "origin_epoch",
    "replaces",
    "origin_keys",
    "digest",
)
EPOCH_COLUMNS = (
    "id",
    "trial",
    "epoch",
    "value",
    "metrics",
    "state_hash",
    "signature",
    "seconds",
    "device",
    "slot",
    "fence",
    "at",
    "members",
    "joules",
    "system",
    "length",
    "began",
    "taken_from",
    "digest",
)
EVENT_COLUMNS = ("seq", "study", "trial", "kind", "at", "body", "digest")
