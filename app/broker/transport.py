"""The scheduler's side of the protocol: reads messages and sends decisions."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any

import redis

from ...base.errors import BackendError
from ...wire.messages import Forged, open_body
from ..common.ports import AttemptStatus, Effects, LiveDevice, Message, OpenAttempt, Survey
from . import connection, ownership, presence, protocol
from .device_records import parse_device_record
from .dropped import Dropped
from .sending import command_of

log = logging.getLogger(__name__)

#: The number of releases that are kept for workers that have not read them yet.
RELEASES_KEPT = 10_000
#: The number of studies' ends that are kept for processes that wait for them.
ENDINGS_KEPT = 100
#: The number of trials' ends that are kept for scripts that call callbacks for them.
UNHEARD_KEPT = 1000
#: Milliseconds after which the scheduler's claim on the broker expires unless it is renewed.
HOLD_MS = 10_000
_STREAMS = (protocol.REPORTS, protocol.COMMANDS)
_NUMBER = re.compile("[0-9]{1,18}")


class RedisTransport:
    """The runner's transport on Redis or Valkey.

    Every method raises BackendError if the broker does not answer, and may then be called again.
    """

    def __init__(
        self,
        url: str,
        key: bytes,
        *,
        store: str = "",
        lease_ms: int = 5000,
        version: str = "",
        owner: str = "a scheduler",
    ) -> None:
        """``key`` signs messages unless the broker already has a key.

        ``store`` is the checkpoints' URL. ``lease_ms`` is the life of a lease without a beat.
        ``owner`` names the scheduler's owner: a broker serves one owner at a time.
        """
        self._url = url
        #: The key that proves that the installation is ours. Messages may be signed with another
        #: key that was found on the broker.
        self._own_key = key.hex()
        self._key = key
        self._store = store
        self._lease_ms = lease_ms
        self._version = version
        self._owner = owner
        self._client = connection.connect(url)
        self._boot = token_hex(8)
        self._dropped = Dropped()
        # The place in each stream where reading continues: first the pending entries (received by
        # an earlier scheduler and not acknowledged), then new ones.
        self._after = dict.fromkeys(_STREAMS, "0")
        #: The number of the client's connections when the broker was opened; 0 without sentinels.
        self._connected = 0

    def open(self) -> None:
        """Create streams, group and installation hash if they are missing. May be repeated.

        Raises ``BrokerTaken`` if another owner's scheduler serves this broker, or may return.
        """
        args = (self._owner, HOLD_MS, self._own_key, self._boot, self._store, self._version)
        taking = protocol.OPEN.command((protocol.SCHEDULER, protocol.INSTALLATION), args)
        [(holder, key, last)] = self._execute([taking])
        self._connected = connection.reconnections(self._client)
        if holder != self._owner:
            raise ownership.in_use_error(self._url, holder)
        if last != self._owner:
            raise ownership.other_owner_error(self._url, last)
        stored_key = presence.key_of(key)
        if stored_key is None:
            self._keep_key()
        else:
            self._key = stored_key
        commands: list[protocol.Command] = [
            ("XGROUP CREATE", stream, protocol.GROUP, "0", "MKSTREAM") for stream in _STREAMS
        ]
        self._execute(commands, ignore="BUSYGROUP")
        self._after = dict.fromkeys(_STREAMS, "0")

    def receive(self, timeout: float, limit: int = 512) -> list[Message]:
        """Return new entries of both streams in order. Forged and malformed entries are dropped.

        Returns at once if there are entries, otherwise after ``timeout`` seconds with none.
        """
        while True:
            catching_up = any(after != ">" for after in self._after.values())
            command: list[str | int] = ["XREADGROUP", "GROUP", protocol.GROUP, "scheduler"]
            command += ["COUNT", limit]
            if timeout > 0 and not catching_up:
                block = min(timeout, connection.SOCKET_TIMEOUT / 2)
                command += ["BLOCK", max(1, int(block * 1000))]
            command += ["STREAMS", *self._after, *self._after.values()]
            try:
                with connection.translate_errors(self._url), self._mending():
                    streams = protocol.command(self._client, *command)
            except BackendError as error:
                if "NOGROUP" not in str(error.__cause__):
                    raise
                log.warning("the broker has lost its streams: creating them again")
                self.open()
                return []
            received = list(self._decode(protocol.by_stream(streams)))
            if received or not catching_up:
                return received

    def carry_out(self, effects: Effects) -> None:
        """Carry out all of ``effects`` in one round trip. Repeating this is harmless."""
        commands: list[protocol.Command] = []
        for cut in effects.cuts:
            attempt = protocol.attempt_key(cut.trial)
            command = protocol.CUT.command((attempt, protocol.CALLS), (cut.fence, attempt))
            commands.append(command)
        for revoke in effects.revokes:
            leases = [protocol.lease_key(revoke.trial, rank) for rank in range(revoke.ranks)]
            attempt = protocol.attempt_key(revoke.trial)
            keys = (attempt, protocol.CALLS, *leases)
            commands.append(protocol.REVOKE.command(keys, (revoke.fence, attempt)))
        for study, text in effects.history:
            key = protocol.HISTORY + study
            commands.append(("XADD", key, "*", *protocol.sealed(self._key, text)))
        sizes = Counter(study for study, _ in effects.history)
        # The stream is not deleted first: its ids would restart, and a reader might find a part.
        commands += [
            ("XTRIM", protocol.HISTORY + study, "MAXLEN", sizes[study])
            for study in effects.repeated
        ]
        for dispatch, spec in effects.dispatches:
            commands.append(
                command_of(
                    dispatch, spec, key=self._key, store=self._store, lease_ms=self._lease_ms
                )
            )
        # A ledger that was restored may release more trials at once than are usually kept.
        most = max(RELEASES_KEPT, 2 * len(effects.releases))
        for release in effects.releases:
            fields = ("t", release.trial, "s", release.study)
            commands.append(("XADD", protocol.RELEASES, "MAXLEN", "~", most, "*", *fields))
            # A copy of an old message then finds no attempt, and is stale.
            commands.append(("DEL", protocol.attempt_key(release.trial)))
        for study, trial in effects.unheard:
            fields = ("s", study, "t", trial)
            commands.append(("XADD", protocol.UNHEARD, "MAXLEN", "~", UNHEARD_KEPT, "*", *fields))
        for study in effects.ended:
            keys = (protocol.HISTORY + study, protocol.ANNOUNCEMENTS + study)
            commands.append(("DEL", *keys))
            commands.append(
                ("XADD", protocol.ENDINGS, "MAXLEN", "~", ENDINGS_KEPT, "*", "s", study)
            )
        for name, text in effects.answers:
            key = protocol.PREFIX + name
            commands.append(("LPUSH", key, text))
            commands.append(("EXPIRE", key, protocol.REPLY_EXPIRES))
        for stream in _STREAMS:
            ids = [ack.id for ack in effects.acks if protocol.PREFIX + ack.stream == stream]
            commands += _forget(stream, ids)
        if commands:
            self._execute(commands)

    def drop(self, message: Message, why: Forged) -> None:
        """Log that ``message`` was unusable. The next round trip counts it as dropped."""
        self._dropped.note(message.stream, message.id, why)

    def survey(self, attempts: Sequence[OpenAttempt]) -> Survey:
        """Return the devices that answer, and the state of each of ``attempts``, in one round trip.

        Raises BackendError, also once after a failover, which counts as an outage.
        """
        pairs = [item for attempt in attempts for item in (attempt.trial, attempt.ranks)]
        keys = (protocol.DEVICES, protocol.INSTALLATION, protocol.SCHEDULER, protocol.PREFIX)
        arguments = (self._owner, HOLD_MS, *pairs)
        command = protocol.SURVEY.command(keys, arguments)
        [boot, key], devices, fields, absent = self._execute([command])[0]
        if connection.reconnections(self._client) != self._connected:
            # The last confirmed writes may be lost, and the last messages unread.
            raise BackendError("the broker may have failed over: what it lacks is sent again")
        if boot is not None and key != self._key.hex():
            self._keep_key()
        states = {
            attempt.trial: AttemptStatus(
                self._fence(attempt.trial, fields[i]), fields[i + 1], tuple(fields[i + 2])
            )
            for i, attempt in zip(range(0, len(fields), 3), attempts, strict=True)
        }
        alive = {record.device.name: record for record in self._records(devices)}
        stopped = frozenset(r.device.name for r in self._records(absent) if r.draining)
        return Survey(alive, states, boot, stopped)

    def scripts(self, studies: Collection[str]) -> Collection[str]:
        """Return the studies among ``studies`` that have a live script which calls callbacks."""
        living = self._execute([("EXISTS", protocol.script_key(study)) for study in studies])
        return [study for study, alive in zip(studies, living, strict=True) if alive]

    def close(self) -> None:
        """Leave the broker to the next scheduler. If it does not answer, nothing is done."""
        with suppress(BackendError):
            self._execute([protocol.LEAVE.command((protocol.SCHEDULER,), (self._owner,))])
        self._client.close()

    def _decode(
        self, streams: Sequence[tuple[str, Sequence[tuple[str, Any]]]]
    ) -> Iterator[Message]:
        bad: dict[str, list[str]] = {stream: [] for stream in _STREAMS}
        for stream, entries in streams:
            if self._after[stream] != ">":
                # Pending entries are read page by page, until a page is empty.
                self._after[stream] = entries[-1][0] if entries else ">"
            name = stream.removeprefix(protocol.PREFIX)
            for entry, raw in entries:
                try:
                    fields = protocol.pairs(raw)
                    body = open_body(self._key, fields.get("p"), fields.get("s"))
                except Forged as error:
                    self._dropped.note(name, entry, error)
                    bad[stream].append(entry)
                else:
                    yield Message(entry, name, body)
        dropped = [command for stream, ids in bad.items() for command in _forget(stream, ids)]
        if dropped:
            self._execute(dropped)

    def _keep_key(self) -> None:
        """Restore our signing key on the broker if another key, or none, is found there."""
        why = Forged("form", "it was not the key of this installation: it is written again")
        self._dropped.note("installation", "key", why)
        self._execute([("HSET", protocol.INSTALLATION, "key", self._key.hex())])

    def _fence(self, trial: str, text: str | None) -> int | None:
        if text is None:
            return None
        if _NUMBER.fullmatch(text):
            return int(text)
        self._dropped.note("attempts", trial, Forged("form", f"fence = {text!r} is not a number"))
        self._execute([("DEL", protocol.attempt_key(trial))])
        return None

    def _records(self, known: Sequence[str]) -> list[LiveDevice]:
        """Return the devices in ``known``, a list in which names and records alternate.

        Invalid records are deleted from the broker.
        """
        devices, bad = [], []
        for name, text in zip(known[::2], known[1::2], strict=True):
            try:
                devices.append(parse_device_record(name, text))
            except Forged as error:
                self._dropped.note("devices", name, error)
                bad.append(name)
        if bad:
            self._execute([("HDEL", protocol.DEVICES, *bad)])
        return devices

    @contextmanager
    def _mending(self, commands: Sequence[protocol.Command] = ()) -> Iterator[None]:
        """Repair a key of ours if the body fails because its value has the wrong type.

        The value is removed, and missing keys are created. The error is raised nevertheless, since
        the request has not been carried out.
        """
        try:
            yield
        except redis.ResponseError as error:
            if connection.is_wrong_type(error):
                self._dropped.remove_misplaced(self._client, protocol.keys_of(commands))
            raise

    def _execute(self, commands: Sequence[protocol.Command], ignore: str = "") -> list[Any]:
        """Return the answers to ``commands``; raise the server's errors as BackendError.

        Errors that contain ``ignore`` are left among the answers. The same round trip counts the
        messages that were dropped meanwhile.
        """
        counts = self._dropped.counts()
        with connection.translate_errors(self._url), self._mending(commands):
            answers = protocol.execute(self._client, [*commands, *counts])
            for answer in answers:
                if connection.is_wrong_type(answer):
                    raise answer
        for answer in answers:
            if isinstance(answer, redis.RedisError) and not (ignore and ignore in str(answer)):
                raise BackendError(f"the broker refuses: {answer}") from answer
        self._dropped.sent(counts)
        return answers[: len(commands)]


def _forget(stream: str, ids: Sequence[str]) -> list[protocol.Command]:
    """Return commands that acknowledge and delete entries, which only the scheduler needs."""
    if not ids:
        return []
    return [("XACK", stream, protocol.GROUP, *ids), ("XDEL", stream, *ids)]
