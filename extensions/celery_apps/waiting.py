"""A task for users' Celery apps that waits for a study to end.

A worker has the task once the worker has imported this module. This is so if a module of the app
uses ``penstock.celery.wait_for``, or if the app's ``include`` names this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import shared_task

from ...app.common.validation import ABOVE_0, finite
from ...base.errors import LASTING, BackendError, TrialFailed, UsageError

if TYPE_CHECKING:
    from ...app.client.study.study import Study


def wait_for(study: Study | str | None = None, every: float = 5.0) -> Any:
    """Return the signature of a task that waits for a study and then returns the study's figures.

    ``study`` is a submitted study, its name or its id. If ``study`` is None, the task waits for the
    study whose name or id is the result of the task before it in a chain. The task checks every
    ``every`` seconds, and holds no slot of a worker meanwhile. The task raises TrialFailed if the
    study has failed.
    """
    seconds = finite("every", every, "seconds above 0", ABOVE_0)
    if study is None:
        return _wait.s(every=seconds)
    name = study if isinstance(study, str) else getattr(study, "id", None)
    if not isinstance(name, str):
        raise UsageError.refuse("study", study, "a study, its name or id, or None")
    return _wait.si(name, every=seconds)


@shared_task(bind=True, name="penstock.wait_for", max_retries=None)  # type: ignore[untyped-decorator]
def _wait(self: Any, study: str, every: float = 5.0) -> dict[str, Any]:
    from ...app.host.settings import load
    from ...app.server.services.ledger_location import LedgerElsewhere, ledger_reader
    from .facts import of_ledger

    if not isinstance(study, str):
        raise UsageError.refuse(
            "study", study, "a study's name or id, as the task before returns it"
        )
    try:
        reader = ledger_reader(load())
        row = reader.study(study)
        facts = None if row.finished_at is None else of_ledger(reader, row)
    except (*LASTING, LedgerElsewhere):
        raise
    except BackendError as error:
        raise self.retry(countdown=every, exc=error) from error
    if facts is None:
        raise self.retry(countdown=every)
    if facts["status"] == "failed":
        raise TrialFailed("exception", f"study {row.name} failed: {row.reason}")
    return facts
