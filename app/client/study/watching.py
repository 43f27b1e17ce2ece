"""Watches a submitted study: calls callbacks, feeds logs, and says how the study ended."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Self

from ....base.errors import BackendError, TrialFailed, UsageError
from ....scheduler.model.retry import ENDS_STUDY
from ....scheduler.model.trial import FINAL, TrialState
from ...common.text import in_shell
from ...extensions import has_command
from .handle import StudyHandle, script_run

if TYPE_CHECKING:
    from ...host.settings import Settings
    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, StudyRow, TrialRow
    from ...show.views.progress import View
    from ..script_objects.changed import RecordRelay
    from .epoch_callbacks import EpochCallback

#: Seconds to wait for the scheduler to take a report about callbacks.
ACCEPTED_WITHIN = 5.0
#: Seconds until a report that the scheduler did not take is sent again.
AGAIN = 0.2
#: The message of ``penstock run`` when it begins to watch its first study.
IN_THE_BROWSER = "live in the browser: penstock ui"


class HeardTrials(threading.Thread):
    """Tells the scheduler for which trials callbacks were called: the next trials wait for that.

    It does so in a thread, so that the next callbacks need not wait for the answer. Trials whose
    callbacks return meanwhile are reported together. A report that the scheduler did not take is
    sent again.
    """

    def __init__(self, settings: Settings, study: str) -> None:
        from ...broker.client import Client

        super().__init__(name="heard-trials", daemon=True)
        self._client, self._study = Client(settings, timeout=ACCEPTED_WITHIN), study
        self._called: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._called.put(None)
        if kind is None:
            self.join(ACCEPTED_WITHIN)
        self._over.set()
        self.join()
        if kind is not None:  # no more callbacks are called, though the study may go on
            with suppress(BackendError, UsageError):
                self._client.hear(self._study, (), over=True)

    def add(self, trial: str) -> None:
        """Note that the callbacks of ``trial`` have returned."""
        self._called.put(trial)

    def study_over(self) -> None:
        """Note that the study is over, so that no trial waits for callbacks any more."""
        self._over.set()

    def run(self) -> None:
        while (trial := self._called.get()) is not None:
            trials = [trial]
            with suppress(queue.Empty):
                while (trial := self._called.get_nowait()) is not None:
                    trials.append(trial)
            while not (self._over.is_set() or self._is_taken(trials)):
                self._over.wait(AGAIN)
            if trial is None:
                return

    def _is_taken(self, trials: Sequence[str]) -> bool:
        try:
            self._client.hear(self._study, trials)
        except UsageError:
            return True  # the study is over, or goes on without callbacks
        except BackendError:
            return False
        return True


@contextmanager
def listening(handle: StudyHandle) -> Iterator[None]:
    """Show the scheduler, in the block, that this script lives and calls the study's callbacks."""
    from ...broker.endings import Listening
    from ...broker.server import broker_url

    with Listening(broker_url(handle.settings), lambda: handle.id):
        yield


def watch(
    handle: StudyHandle,
    logs: Sequence[EpochCallback],
    *,
    on_trial: Callable[[TrialRow], None] | None,
    heard: bool = False,
    relay: RecordRelay | None = None,
    **options: Any,
) -> StudyRow:
    """Watch a study to its end, and return its row in the ledger.

    ``on_trial`` is called for each trial that ends; ``logs`` receive the trials' epochs. With
    ``heard`` the study's next trials wait until ``on_trial`` has returned. ``relay`` passes on a
    trial's log records before ``on_trial`` is called. ``options`` are those of
    ``views.live.follow``.
    """
    from ...broker.endings import Endings
    from ...broker.server import broker_url
    from ...server.services.supervisor import Supervisor
    from ...show.status.stall_monitor import StallMonitor
    from ...show.views.live import follow
    from .epoch_callbacks import Feed

    reader, settings = handle.reader(), handle.settings
    if options.get("show", True) and script_run().submitted == [handle] and has_command("ui"):
        from rich.text import Text

        from ...common.console import PlainConsole

        # ``penstock run`` shows this message for its first study only.
        PlainConsole(stderr=True).print(Text(IN_THE_BROWSER, style="dim"), soft_wrap=True)
    # A watcher also revives the services that the study needs.
    trials = HeardTrials(settings, handle.id) if heard and on_trial is not None else None

    def pass_records_on() -> None:
        if relay is not None:
            with suppress(BackendError):  # they come with the next look
                relay.pass_on(handle.id)

    def tell(trial: TrialRow) -> None:
        assert on_trial is not None
        pass_records_on()
        on_trial(trial)
        if trials is not None:
            trials.add(trial.id)

    def look(view: View, epochs: Sequence[EpochRow]) -> None:
        pass_records_on()
        feed.update(view, epochs)
        if trials is not None and view.study.finished_at is not None:
            trials.study_over()

    endings = Endings(broker_url(settings), handle.id)
    endings.begin()
    # Ctrl-C and exceptions in callbacks end only the watching.
    with (
        closing(Feed(logs, settings.run)) as feed,
        Supervisor(settings) as supervisor,
        trials or nullcontext(),
    ):
        monitor = StallMonitor(settings, reader, supervisor.trouble)
        row = follow(
            reader,
            handle.id,
            on_trial=on_trial and tell,
            on_poll=look if logs or relay or trials is not None else None,
            why=monitor.reason,
            still=monitor.still,
            wait=endings.wait,
            **options,
        )
        if relay is not None:
            relay.pass_on(handle.id)
    return row


def show_failures(reader: Reader, row: StudyRow, before: Container[str] = ()) -> None:
    """Show the study's failed trials on standard error, if there are any.

    Trials whose ids are in ``before`` do not count.
    """
    trials = [each for each in reader.trials(row.id) if each.id not in before]
    failed = [each for each in trials if each.state == TrialState.FAILED]
    if not failed:
        return
    from ...common.console import PlainConsole
    from ...show.stories.failures import failures_view

    over = sum(each.state in FINAL - {TrialState.CANCELLED} for each in trials)
    PlainConsole(stderr=True).print(failures_view(row, failed, over), soft_wrap=True)


def failure_of(handle: StudyHandle, row: StudyRow) -> TrialFailed:
    """Return the error that ``optimize`` raises if no trial succeeded or the study has paused."""
    from ...show.views.progress import failure_words

    rows = handle.reader().trials(handle.id)
    failed = [trial for trial in rows if trial.failure_kind]
    ending = [trial for trial in failed if trial.failure_kind in ENDS_STUDY]
    words = f"no trial of {handle.study_name} succeeded"
    if ending:
        first, why = ending[0], f"{handle.study_name} was ended: {row.reason}"
    elif not failed:
        return TrialFailed("exception", f"{words}: {row.reason}")
    elif row.paused_itself:
        first, why = failed[-1], f"{handle.study_name} has paused: {row.reason}"
    elif any(trial.state in (TrialState.CANCELLED, TrialState.COMPLETED) for trial in rows):
        # Before all had failed; what is complete is of earlier calls.
        first, why = failed[-1], f"{handle.study_name} was ended: {row.reason}"
    else:
        first = failed[0]
        why = f"{words}; trial {first.number} {failure_words(first)}"
    failure = TrialFailed(str(first.failure_kind), why, first.failure_traceback or "")
    if failure.traceback:
        failure.add_note(f"\ntrial {first.number}: {failure.traceback}")
    return failure


def sort_callbacks(callbacks: Any) -> tuple[list[Any], list[EpochCallback]]:
    """Return the callbacks that are called for each trial, and those that receive epochs."""
    from .epoch_callbacks import EpochCallback

    allowed = "None, or a list of functions of (study, trial) and of Penstock's logs"
    if not isinstance(callbacks, Iterable | None) or isinstance(callbacks, str):
        raise UsageError.refuse("callbacks", callbacks, allowed)
    trial_callbacks: list[Any] = []
    logs: list[EpochCallback] = []
    for each in callbacks or ():
        if isinstance(each, EpochCallback):
            logs.append(each)
        elif callable(each) and not isinstance(each, type):
            trial_callbacks.append(each)
        else:
            raise UsageError.refuse("callbacks", each, allowed)
    return trial_callbacks, logs


def open_message(study_name: str) -> str:
    """Return the message about a study whose trials were run by the script itself."""
    return (
        f"{study_name} is open: nothing of it runs. It goes on where a script loads it and asks for"
        " trials, and ends with study.close()."
    )


def asked_message(study_name: str, study_id: str) -> str:
    """Return the message about a study of Optuna's that has ended with its script."""
    typed = in_shell(study_name, study_id)
    shows = "report" if has_command("report") else "status"
    return (
        f"{study_name} did not run on Penstock's devices: the script, or a library in it, asked for"
        f" its trials and ran them itself. It has ended; a script that loads it may ask for more."
        f" penstock {shows} {typed}"
    )


def detached_message(study_name: str, study_id: str) -> str:
    """Return the message about a study that is no longer watched but continues."""
    typed = in_shell(study_name, study_id)
    return (
        f"{study_name} goes on. Watch it with `penstock watch {typed}`,"
        f" cancel it with `penstock cancel {typed}`."
    )
