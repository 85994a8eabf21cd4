"""JetStream's administration: streams and their exact settings, as raw JSON.

Owns every call to `$JS.API.STREAM…`. nats-py's dataclasses do not know the newest fields and
drop what they do not know, so requests are written here field by field and read back field by
field (spec §3).

Invariant: creating is idempotent and safe from many nodes at once; a stream that exists with
settings that matter set otherwise is `Misconfigured`, never silently changed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.requester import Reply, Requester
from antiphon.errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable

API_TIMEOUT_S = 10.0
MAX_RECORD_BYTES = 512 * 1024
DUPLICATE_WINDOW_NS = 120 * 1_000_000_000
MAX_CONSUMERS = 65_536
"""Consumers are per kind and priority. 2.15's default of 1,000 is three priorities of 333 kinds;
the bound here only stops a runaway, since each costs the server some 50 kB."""
_ATTEMPTS = 5

NAME_IN_USE = 10058
NOT_FOUND = 10059


class ApiError(Struct, frozen=True):
    """JetStream's error object."""

    err_code: int = 0
    description: str = ""


class _Envelope(Struct, frozen=True):
    error: ApiError | None = None


class ApiFailure(Unavailable):
    """JetStream answered a management request with an error."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(f"JetStream refused it: {error.description} ({error.err_code})")
        self.err_code = error.err_code


_envelope = msgspec.json.Decoder(_Envelope)


def log_name(mesh: str) -> str:
    """The stream that holds a mesh's log."""
    return f"AP_{mesh}_LOG"


def leases_name(mesh: str) -> str:
    """The stream behind the keys with an end."""
    return f"AP_{mesh}_LEASES"


def blobs_name(mesh: str) -> str:
    """The stream behind the blobs."""
    return f"AP_{mesh}_BLOBS"


def messages_name(mesh: str) -> str:
    """The stream behind the registers of messages."""
    return f"AP_{mesh}_MESSAGES"


def log_config(mesh: str, *, replicas: int) -> dict[str, Any]:
    """The log's stream: nothing may drop, erase or alter what was committed."""
    return {
        **_base(log_name(mesh), [f"ap.{mesh}.>"], replicas),
        "max_msgs_per_subject": -1,
        "max_consumers": MAX_CONSUMERS,
        "allow_msg_ttl": False,
        "allow_atomic": True,
        "republish": {"src": f"ap.{mesh}.>", "dest": f"apr.{mesh}.>"},
    }


def leases_config(mesh: str, *, replicas: int) -> dict[str, Any]:
    """One message per key, with its own time to live."""
    return _base(leases_name(mesh), [f"apl.{mesh}.>"], replicas)


def blobs_config(mesh: str, *, replicas: int) -> dict[str, Any]:
    """Chunks and indexes; a roll-up by the writer removes what was aborted or forgotten."""
    return {
        **_base(blobs_name(mesh), [f"apo.{mesh}.>"], replicas),
        "max_msgs_per_subject": -1,
        "allow_rollup_hdrs": True,
    }


def messages_config(mesh: str, *, replicas: int) -> dict[str, Any]:
    """One register per message. Every write is told, without its body, to nodes that watch."""
    return {
        **_base(messages_name(mesh), [f"apm.{mesh}.>"], replicas),
        "republish": {"src": f"apm.{mesh}.>", "dest": f"apn.{mesh}.>", "headers_only": True},
    }


def _base(name: str, subjects: list[str], replicas: int) -> dict[str, Any]:
    """What streams have in common; each says what it has otherwise."""
    return {
        "name": name,
        "subjects": subjects,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": MAX_RECORD_BYTES,
        "duplicate_window": DUPLICATE_WINDOW_NS,
        "deny_purge": False,
        "deny_delete": True,
        "max_msgs_per_subject": 1,
        "max_consumers": 16,
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": True,
        "allow_atomic": False,
        "allow_direct": True,
        "allow_msg_schedules": False,
        "allow_msg_counter": False,
    }


class Streams:
    """Calls JetStream's management API over the pipeline."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def call(self, subject: str, body: dict[str, Any] | None = None) -> bytes:
        """One API request; `ApiFailure` if JetStream answers with an error."""
        payload = b"" if body is None else msgspec.json.encode(body)
        reply = await self._requester.request(
            subject.encode(), payload, timeout_s=API_TIMEOUT_S, is_write=True
        )
        return check_api(reply)

    async def ensure(self, config: dict[str, Any]) -> None:
        """Create the stream if it is not there; compare it if it is."""
        name = config["name"]
        for attempt in range(_ATTEMPTS):
            try:
                answer = await self.call(f"$JS.API.STREAM.CREATE.{name}", config)
            except ApiFailure as failure:
                if failure.err_code == NAME_IN_USE:
                    answer = await self.call(f"$JS.API.STREAM.INFO.{name}")
                elif attempt + 1 == _ATTEMPTS or not _is_passing(failure):
                    raise Misconfigured(
                        f"cannot create the stream {name}: {failure.message}",
                        hint=_creation_hint(failure),
                    ) from failure
                else:
                    await asyncio.sleep(0.2 * (attempt + 1))
                    continue
            except OutcomeUnknown:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue  # creating again is harmless: it either finds it or makes it
            compare(config, msgspec.json.decode(answer)["config"])
            return

    async def info(self, name: str) -> dict[str, Any] | None:
        """The stream's settings and state, or None if there is none."""
        try:
            answer = await self.call(f"$JS.API.STREAM.INFO.{name}")
        except ApiFailure as failure:
            if failure.err_code == NOT_FOUND:
                return None
            raise
        found: dict[str, Any] = msgspec.json.decode(answer)
        return found

    async def purge(self, name: str, *, subject: str, upto: int) -> int:
        """Remove matching messages up to and including `upto`."""
        answer = await self.call(
            f"$JS.API.STREAM.PURGE.{name}", {"filter": subject, "seq": upto + 1}
        )
        return int(msgspec.json.decode(answer)["purged"])


def check_api(reply: Reply) -> bytes:
    """The body of an API answer, or the error that it stands for."""
    if wire.status_of(reply.header) == 503:  # noqa: PLR2004 - NATS's own status
        raise Unavailable(
            "this server does not serve JetStream (no responders)",
            hint="is JetStream enabled for this account?",
        )
    error = _envelope.decode(reply.payload).error
    if error is not None:
        raise ApiFailure(error)
    return reply.payload


def compare(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """`Misconfigured` naming every setting that matters and differs.

    The server leaves out fields that have their zero value.
    """
    different = [
        f"{field} is {_show(found.get(field))}, should be {_show(value)}"
        for field, value in wanted.items()
        if (found.get(field) or None) != (value or None) and not _unlimited(found, field, value)
    ]
    if different:
        raise Misconfigured(
            f"the stream {wanted['name']} exists with other settings: {'; '.join(different)}",
            hint="it was made by something else or changed by hand: put the settings back, "
            "or use another mesh",
        )


def _unlimited(found: dict[str, Any], field: str, value: Any) -> bool:
    return value == -1 and found.get(field) in {None, 0, -1}


def _show(value: Any) -> str:
    return "unset" if value is None else msgspec.json.encode(value).decode()


def _is_passing(failure: ApiFailure) -> bool:
    """Whether the cluster may well say something else in a moment (no leader, no peers yet)."""
    return failure.err_code in {10005, 10008, 10023, 10028, 10036, 10074}


def _creation_hint(failure: ApiFailure) -> str:
    if failure.err_code == 10074:  # noqa: PLR2004 - "replicas > 1 not supported in non-clustered"
        return "a single server can keep one copy only: use replicas=1"
    return "check the server's log"


def check_replicas(replicas: int) -> int:
    """1, 3 or 5: an even number of copies survives no more than the odd one below it."""
    if replicas not in {1, 3, 5}:
        raise Rejected(f"{replicas} replicas are not supported: use 1, 3 or 5", reason="replicas")
    return replicas
