"""The scheduler process: it builds the runner from its parts and keeps the runner going.

One process is active for each state folder. A second process waits for the lock and takes over when
the first process dies. The process has no state of its own that could be lost: after a crash the
engine is rebuilt from the ledger, and the reaper finds decisions that were made but not sent.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version

from ....base.errors import LASTING, BackendError, LedgerDamaged
from ....scheduler.engine.engine import Engine
from ....scheduler.model.events import PolicyChosen, PricesChosen
from ...broker import fitness, installation, presence, server
from ...broker.connection import BrokerUnfit, check_eviction
from ...broker.ownership import BrokerTaken, check_free, owner
from ...broker.transport import RedisTransport
from ...common.clock import WallClock
from ...extensions import of_ends
from ...host import locks
from ...host.askers import Askers
from ...host.log_keeper import LogKeeper
from ...host.settings import Settings
from ...ledger.ledger import SqlLedger
from ...ledger.reader import Reader
from ...ledger.restore import restore
from ..advice.policy_host import check_policy
from ..optuna_bridge.samplers import SamplerHost
from ..optuna_bridge.updates import LedgerUpdates, Update
from ..runner.runner import Runner
from ..runner.users_samplers import Follow, UsersSamplers
from .backups import GONE_ADVICE, backups_of, is_ledger_gone
from .code_files import StoredCode
from .janitor import Janitor
from .services import stop_if_idle
from .supervisor import Supervisor

log = logging.getLogger(__name__)

#: Seconds between two attempts to reach a broker or a ledger that does not answer.
RETRY = 0.1
#: Seconds between two checks whether the services are still needed.
IDLE_CHECK_INTERVAL = 1.0
#: Seconds for which the lock file may be missing before the scheduler exits.
DISPLACED = 2.0
#: Seconds between two checks of a damaged ledger.
DAMAGE_CHECK_INTERVAL = 30.0


def main(settings: Settings) -> None:
    """Run this state folder's scheduler until SIGTERM, or until the services were idle for long."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # psycopg logs consequences of errors that we log.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    cross_study = check_policy(settings.policy)
    settings.ensure_home()
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    holder = locks.pid_of(settings.run, "scheduler")
    if holder not in (None, os.getpid()):
        log.info("process %s is the scheduler of %s: waiting for it", holder, settings.home)
    with (
        locks.hold(settings.run, "scheduler", wait=True) as lock,
        locks.alone_in(settings.home, lock, stop.is_set) as alone,
    ):
        if not alone:
            log.info("another process is the scheduler of %s", settings.home)
            return
        with Supervisor(settings), LogKeeper(settings):
            if settings.broker is None:
                server.start(settings)
            Scheduler(settings, lock.is_current, cross_study=cross_study).serve(stop)


class Scheduler:
    """The owner of the runner: it builds the runner, and rebuilds it whenever the ledger fails."""

    def __init__(
        self, settings: Settings, is_current: Callable[[], bool], *, cross_study: bool
    ) -> None:
        self._settings = settings
        #: True if the scheduler's policy orders the trials of all studies together.
        self._cross_study = cross_study
        #: A function that returns True if this process's lock file is still in its place.
        #: ``_in_place`` is the last time (monotonic, in seconds) at which the file was there.
        self._is_current = is_current
        self._in_place = time.monotonic()
        self._clock = WallClock()
        self._busy_at = time.time()
        #: An event that is set if a backup found the ledger damaged. The ledger must then be
        #: checked.
        self._doubted = threading.Event()

    def serve(self, stop: threading.Event) -> None:
        """Serve until ``stop`` is set or the services were idle for long."""
        key = installation.installation_key(self._settings)
        store = installation.checkpoints(self._settings.store_url, key)
        janitor = Janitor(store, Reader(self._settings.ledger_url))
        if is_ledger_gone(self._settings):
            ledger_url = self._settings.ledger_url
            log.warning(
                "the ledger at %s is missing, though there was one. %s", ledger_url, GONE_ADVICE
            )
        backups = backups_of(self._settings, self._doubted.set)
        last_error = ""
        while not stop.is_set():
            try:
                ledger, engine = self._open(key)
            except BackendError as error:
                if str(error) != last_error:
                    log.error("%s", error)
                last_error = str(error)
                if not isinstance(error, BrokerTaken):  # then clients are served by others
                    lasts = isinstance(error, (*LASTING, BrokerUnfit))
                    self._tell(last_error, lasts=lasts)
                stop.wait(1.0)
                if isinstance(error, LedgerDamaged):
                    # A check reads the whole ledger again, and only a person can repair it.
                    again = time.monotonic() + DAMAGE_CHECK_INTERVAL
                    while not stop.is_set() and time.monotonic() < again:
                        self._tell(last_error, lasts=True)  # the message expires soon
                        stop.wait(1.0)
                continue
            last_error = ""
            self._doubted.clear()
            if backups is not None and not backups.is_alive():
                backups.start()
            if not janitor.is_alive():
                janitor.start()
            log.info("restored %d events of %s", engine.state.seq, self._settings.home)
            transport = RedisTransport(
                server.broker_url(self._settings),
                key,
                store=self._settings.store_url,
                lease_ms=self._settings.lease_ms,
                version=version("penstock"),
                owner=owner(self._settings),
            )
            users_samplers = UsersSamplers(store, self._follow)
            runner = Runner(
                engine,
                ledger,
                transport,
                SamplerHost(),
                self._clock,
                claim_timeout=self._settings.claim_timeout,
                discard=janitor.discard,
                history=self._history,
                code=StoredCode(store),
                users_samplers=users_samplers,
                askers=Askers(self._settings.run),
            )
            try:
                self._run(runner, ledger, stop)
            finally:
                users_samplers.close()
                transport.close()
                ledger.close()

    def _follow(self, study: str) -> Follow:
        return LedgerUpdates(Reader(self._settings.ledger_url), study).read_written

    def _history(self, study: str) -> list[Update]:
        return LedgerUpdates(Reader(self._settings.ledger_url), study).read()

    def _open(self, key: bytes) -> tuple[SqlLedger, Engine]:
        # The check comes before a ledger is created that could be taken for the installation's.
        self._check_free()
        ledger = SqlLedger.open(self._settings.ledger_url)
        try:
            engine = restore(ledger)
            # The mark is written before the broker announces the store, because agents look for
            # the mark at once.
            installation.mark(self._settings.store_url, key)
        except BaseException:
            ledger.close()  # otherwise its lock would block the next try
            raise
        return ledger, engine

    def _check_free(self) -> None:
        """Raise an error if the broker cannot be used, or if another scheduler owns it.

        A broker that does not answer is no error here.
        """
        try:
            client = server.connect(self._settings)
        except BackendError:
            return
        with client:
            check_free(self._settings, client)
            check_eviction(client, server.broker_url(self._settings))
            if self._settings.broker is not None:
                fitness.check(client, self._settings.broker)

    def _tell(self, trouble: str, *, lasts: bool) -> None:
        """Tell clients that wait for a scheduler why there is none.

        ``lasts`` is True if a person must change something before the scheduler can serve.
        """
        with suppress(BackendError), server.connect(self._settings) as client:
            presence.report_trouble(client, server.broker_url(self._settings), trouble, lasts=lasts)

    def _run(self, runner: Runner, ledger: SqlLedger, stop: threading.Event) -> None:
        begun = away = False
        idle_look = 0.0
        while not (stop.is_set() or self._doubted.is_set()):
            try:
                if not begun:
                    self._begin(runner)
                    begun, away = True, False
                if away:
                    runner.outage()
                    log.info("the broker is back")
                    away = False
                if runner.turn(0.25):
                    self._busy_at = time.time()
            except BackendError as error:
                if runner.broken or isinstance(error, LedgerDamaged):
                    log.error("%s; rebuilding the engine from the ledger", error)
                    stop.wait(1.0)
                    return
                if not away:
                    log.warning("%s", error)
                away = True
                stop.wait(RETRY)
            if begun and time.monotonic() >= idle_look:
                idle_look = time.monotonic() + IDLE_CHECK_INTERVAL
                if not runner.engine.state.attempts:
                    with suppress(BackendError):  # the next commit says what is wrong
                        ledger.shrink_log()
                if self._idle(runner) or self._is_displaced():
                    stop.set()
        if begun and not (runner.broken or self._doubted.is_set()):
            try:
                runner.snapshot()
            except BackendError as error:
                log.warning("%s: the next start replays more events", error)

    def _begin(self, runner: Runner) -> None:
        """Start the runner with the settings.

        The method is called again if it raises BackendError.
        """
        at, settings = self._clock.now(), self._settings
        if settings.restored.exists():
            runner.restored()
            settings.restored.unlink()
        cross_study = self._cross_study
        runner.start(
            PolicyChosen(
                at=at,
                policy=settings.policy,
                cross_study=cross_study,
                fill_at_end=True,
                keep_failed=True,
                keep_widths=True,
            ),
            PricesChosen(at=at, prices=settings.price_list),
            *(
                event
                for policy_events in of_ends("server", "chosen")
                for event in policy_events(settings, runner.engine.state, at)
            ),
        )

    def _is_displaced(self) -> bool:
        """Return True if the lock file is gone for good.

        Without the lock file, nobody can find or stop this process.
        """
        if self._is_current():
            self._in_place = time.monotonic()
        displaced = time.monotonic() - self._in_place > DISPLACED
        if displaced:
            log.warning("the lock file of this scheduler was moved or deleted: exiting")
        return displaced

    def _idle(self, runner: Runner) -> bool:
        state = runner.engine.state
        runs = state.attempts or any(study.runnable for study in state.studies.values())
        if runs or runner.has_questions():
            self._busy_at = time.time()
            return False
        if time.time() - self._busy_at < self._settings.idle_stop:
            return False
        return stop_if_idle(self._settings, self._busy_at)
