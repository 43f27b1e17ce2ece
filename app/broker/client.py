"""A client's commands to the scheduler: sealed, repeated until answered, but carried out once.

The scheduler knows a command by its id, so sending it again is harmless. A command survives the
death of a scheduler or a broker: the client repeats it until it is answered.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base.errors import BackendError, UsageError
from ...base.urls import hide_password
from ...profiling.knobs.knobs import SystemConfig
from ...profiling.similarity.history import HistoryEntry
from ...scheduler.model.events import StudyImported
from ...scheduler.model.study import Params, StudySpec
from ...wire.messages import Forged, dumps, parse, seal
from ..common.text import in_shell
from ..host import locks
from ..host.settings import Settings
from ..ledger.codec import encode, spec_to_json
from ..ledger.history import entries_to_bodies
from . import connection, presence, protocol
from .dropped import Dropped
from .installation import checkpoints
from .server import broker_url

#: Seconds after which an unanswered command is sent again.
RESEND_AFTER = 2.0
#: Seconds of waiting for an answer before the first notice about it, and between two notices.
NOTICE_AFTER = 1.0
NOTICE_EVERY = 10.0
#: Seconds that a scheduler may take to start. No notice is due before that.
STARTS_WITHIN = 10.0
#: The least speed assumed for sending a command (characters a second): code by value is long.
_SPEED = 4e6
#: Seconds until a client gives up. A scheduler that is just starting answers much earlier.
ANSWER_TIMEOUT = 30.0
#: Seconds between two looks for an installation, or for a broker that does not answer.
_POLL_INTERVAL = 0.05


class Client:
    """Sends commands over the broker of ``settings``. Connects on first use; may be used again."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout: float = ANSWER_TIMEOUT,
        notify: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``notify`` is called with a notice if an answer takes long."""
        self._notify = notify
        self._run = settings.run
        self._url = broker_url(settings)
        self._redis = connection.connect(self._url)
        self._timeout = timeout
        self._dropped = Dropped()
        #: The installation that answered the last command; None if that was not answered.
        self._installation: presence.Installation | None = None

    def submit(
        self,
        spec: StudySpec,
        enqueued: Sequence[Params] = (),
        blobs: Mapping[str, bytes] | None = None,
        *,
        heard: bool = False,
    ) -> None:
        """Submit a study to the scheduler. ``enqueued`` configurations are tried first.

        With ``heard``, the study's next trials wait until ``hear`` was called for the trials that
        have ended. ``blobs`` has the code that goes by value (``tasks.contracts.by_value``), by its
        SHA-256 (hex).

        Raises UsageError if the scheduler refuses, BackendError if it does not answer.
        """
        study = json.loads(spec_to_json(spec))
        first = [dict(params) for params in enqueued]
        self.send("submit", study=study, enqueued=first, heard=heard, **_encoded(blobs))

    def cancel(self, study: str) -> None:
        """Stop a study by id. Raises as ``submit`` does."""
        self.send("cancel", study=study)

    def pause(self, study: str) -> None:
        """Pause a study: it starts no new segment. Raises as ``submit`` does."""
        self.send("pause", study=study)

    def resume(self, study: str) -> None:
        """Resume a paused study. Raises as ``submit`` does."""
        self.send("resume", study=study)

    def set_weight(self, study: str, weight: float, priority: int) -> None:
        """Set the weight and priority by which a study shares devices. Raises as ``submit``."""
        self.send("weigh", study=study, weight=weight, priority=priority)

    def extend(
        self,
        study: str,
        *,
        by: int | None = None,
        to: int | None = None,
        now: StudySpec | None = None,
        blobs: Mapping[str, bytes] | None = None,
        heard: bool = False,
    ) -> int:
        """Let a study, over or not, have more trials; return the new total number of its trials.

        The study gets ``by`` more trials, or ``to`` in total. ``now`` has the present code, command
        line and working directory; ``blobs`` and ``heard`` are as in ``submit``. A study that is
        over goes on with these. A study that is not over goes on as it is. A local study takes all
        of ``now``. Raises as ``submit`` does.
        """
        newest: dict[str, Any] = {}
        if now is not None:
            newest = {"spec": json.loads(spec_to_json(now)), **_encoded(blobs)}
        answer = self.send("extend", study=study, by=by, to=to, heard=heard, **newest)
        return int(_field(answer, "n_trials", int))

    def store(self) -> str:
        """Return the URL of the installation's own folder in its checkpoint store.

        Raises BackendError if no scheduler has started on the broker yet.
        """
        installation = presence.fetch_installation(self._redis, self._url)
        if installation is None:
            raise BackendError(
                f"no scheduler has started on the broker {hide_password(self._url)} yet"
            )
        return checkpoints(installation.store, installation.key)

    def hear(self, study: str, trials: Sequence[str], *, over: bool = False) -> None:
        """Say that a script's callbacks were called for ``trials``; with ``over``, the last time.

        Raises as ``submit`` does.
        """
        self.send("hear", study=study, trials=list(trials), over=over)

    def close(self, study: str) -> None:
        """End an ask-and-tell study. Raises as ``submit`` does."""
        self.send("close", study=study)

    def plan(self) -> dict[str, Any]:
        """Return the scheduler's next actions (``scheduler.outlook``). Raises as ``submit``."""
        return dict(_field(self.send("plan"), "plan", dict))

    def import_study(self, study: StudyImported) -> None:
        """Import a study that is over into the ledger. Raises as ``submit`` does."""
        # As text: metrics may be NaN, which a message's own JSON cannot hold.
        self.send("import", imported=encode(study)[1])

    def remember(self, entries: Sequence[HistoryEntry]) -> None:
        """Add ``entries`` to the history of tuned system parameters. Raises as ``submit`` does."""
        self.send("remember", entries=entries_to_bodies(entries))

    def adopt(self, workload: str, machine: str, config: SystemConfig | None) -> None:
        """Pin a system configuration for a workload of the history, or unpin it if that is None.

        Raises as ``submit`` does.
        """
        pinned = None if config is None else dict(config)
        self.send("adopt", workload=workload, machine=machine, config=pinned)

    def enqueue(self, study: str, params: Params) -> None:
        """Enqueue a configuration to be tried next. Raises as ``submit`` does."""
        self.send("enqueue", study=study, params=dict(params))

    def drain(self, devices: Sequence[str], within: float | None = None) -> list[str]:
        """Drain devices, given by unique prefixes of their names; return the whole names.

        Segments that still run there after ``within`` seconds are revoked. If ``within`` is None,
        they may finish their epochs. Raises as ``submit`` does.
        """
        return _names(self.send("drain", devices=list(devices), within=within))

    def undrain(self, devices: Sequence[str]) -> list[str]:
        """Undrain devices, given by unique prefixes; return their names. Raises as ``submit``."""
        return _names(self.send("undrain", devices=list(devices)))

    def free(self, n: int, within: float) -> list[str]:
        """Drain ``n`` devices of the scheduler's choice as ``drain`` does; return their names."""
        return _names(self.send("free", n=n, within=within))

    def send(self, kind: str, **body: Any) -> dict[str, Any]:
        """Send one command and return the scheduler's answer. Raises as ``submit`` does.

        The wait ends early if, after the command was sent, a scheduler says that it cannot serve
        until a person does something.
        """
        command = uuid.uuid4().hex
        try:
            text = dumps({"id": command, "kind": kind, **body})
        except ValueError as error:
            message = f"{kind}: it cannot be sent ({error}): numbers in it must be finite"
            raise UsageError(message) from error
        begun = time.monotonic()
        on_its_way = len(text) / _SPEED
        deadline = begun + self._timeout + on_its_way
        silence, was_sent, notice_due = "", False, 0.0
        while (remaining := deadline - time.monotonic()) > 0:
            answer, silence, lies_there = self._try(
                command, text, min(remaining, RESEND_AFTER + on_its_way)
            )
            if answer is not None:
                return _accepted(answer)
            was_sent = was_sent or lies_there
            now = time.monotonic()
            if now > notice_due and now - begun > self._notice_after():
                self._notify(f"waiting for the scheduler, for up to {self._timeout:g} s: {silence}")
                notice_due = now + NOTICE_EVERY
            if (words := self._refusal(time.monotonic() - begun)) is not None:
                raise BackendError(f"{kind}: the scheduler cannot serve: {words}")
        raise BackendError(
            f"{kind}: {silence} (for {self._timeout:g} s): `penstock doctor` looks for the reason"
            + (_may_still_happen(body) if was_sent else "")
        )

    def _try(self, command: str, text: str, wait: float) -> tuple[dict[str, Any] | None, str, bool]:
        """Try to send a command for ``wait`` seconds.

        Returns the answer or None, the reason why there is none, and True if the command was sent.
        """
        until, was_sent = time.monotonic() + wait, False
        installation_before, self._installation = self._installation, None
        try:
            installation = installation_before or presence.fetch_installation(
                self._redis, self._url
            )
            silence = "no scheduler has opened this broker"
            if installation is not None:
                was_sent = True
                answer = self._exchange(command, text, installation.key, wait)
                if answer is not None:
                    self._installation = installation
                    return answer, "", was_sent
                silence = "the scheduler does not answer"
            trouble = presence.trouble(self._redis, self._url)
            if trouble is not None:
                silence = f"the scheduler cannot serve: {trouble}"
        except BackendError as error:  # the broker is away or refuses writes: that may pass
            silence = str(error)
        time.sleep(max(0.0, min(until - time.monotonic(), _POLL_INTERVAL)))
        return None, silence, was_sent

    def _notice_after(self) -> float:
        """Return the seconds of waiting after which a notice is due."""
        age = locks.age(self._run, "scheduler")
        return NOTICE_AFTER if age is None or age > STARTS_WITHIN else STARTS_WITHIN

    def _refusal(self, within: float) -> str | None:
        try:
            return presence.trouble(self._redis, self._url, within=within, lasting=True)
        except BackendError:
            return None  # the next try says why

    def _exchange(self, command: str, text: str, key: bytes, wait: float) -> dict[str, Any] | None:
        """Send a command and return its answer, or None after ``wait`` seconds.

        Anything else at the key of the answer is dropped.
        """
        name = protocol.reply_name(command)
        until = time.monotonic() + wait
        with connection.translate_errors(self._url):
            self._redis.xadd(protocol.COMMANDS, {"p": text, "s": seal(key, text)})
            while (remaining := until - time.monotonic()) > 0:
                item: Any = self._redis.blpop(
                    [protocol.PREFIX + name], timeout=max(remaining, 0.01)
                )
                if item is None:
                    break
                try:
                    return _parse_answer(item[1])
                except Forged as error:
                    self._dropped.note("replies", name, error)
                    self._dropped.count(self._redis)
        return None


def _encoded(blobs: Mapping[str, bytes] | None) -> dict[str, Any]:
    """Return the field of a command that carries the code in ``blobs``; empty without any."""
    texts = {digest: base64.b64encode(each).decode() for digest, each in (blobs or {}).items()}
    return {"blobs": texts} if texts else {}


def _may_still_happen(body: dict[str, Any]) -> str:
    """Say what an unanswered command may still do when a scheduler starts and finds it."""
    study = body.get("study")
    if not isinstance(study, dict):
        return ". It may still be carried out when a scheduler runs"
    typed = in_shell(study["name"], study["id"])
    return (
        ". The study may still be accepted when a scheduler runs: `penstock status"
        f" {typed}` then shows it, `penstock cancel {typed}` ends it"
    )


def _names(answer: dict[str, Any]) -> list[str]:
    return [str(name) for name in _field(answer, "devices", list)]


def _field(answer: dict[str, Any], name: str, kind: type) -> Any:
    """Return the field ``name`` of ``answer``, checked.

    Anyone with access to the broker may write an answer.
    """
    if not isinstance(answer.get(name), kind):
        excerpt = str(answer)[:80]
        raise BackendError(f"the scheduler's answer is malformed: {excerpt!r}")
    return answer[name]


def _parse_answer(text: str) -> dict[str, Any]:
    """Return the answer in ``text``. Raises ``Forged`` if no scheduler would answer so."""
    answer = parse(text)
    if not answer.get("ok") and not isinstance(answer.get("error"), str):
        raise Forged("form", "it neither accepts the command nor says why not")
    return answer


def _accepted(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok"):
        return answer
    error = answer["error"]
    raise UsageError(error) if answer.get("type") == "UsageError" else BackendError(error)
