"""How the features of rows S1 to S17 are taken out: write safety."""

import asyncio
import os
from itertools import chain
from typing import Any

from tests.breaks.replacement import (
    Break,
    around,
    becomes,
    calls,
    cells_like,
    does_nothing,
    gives,
    with_,
)

LOCKS = "antiphon.core.families.locks"
SENDER = "antiphon.sdk.messages.http_sender"
ENVIRONMENT = "antiphon.sdk.environment"


async def looks_often(self: Any, *_: Any, **__: Any) -> None:
    """A pause after which a waiter reads though nothing has happened."""
    await asyncio.sleep(0.01)
    self._is_touched = True


def filtered_late(old: Any, self: Any, of: Any, *, limit: int, **how: Any) -> Any:
    """A list that is cut, and then shows what its reader may see of the rest."""
    from antiphon.core.authority.scope import EVERYTHING, admits

    kinds = of.kinds(self.scope, how.pop("among", (">",)))
    seen, self.scope = self.scope, EVERYTHING
    part = old(self, of, limit=limit, **how)
    self.scope = seen
    rows = [row for row in part.rows if any(admits(one, row.kind) for one in kinds)]
    return part._replace(rows=rows)


def made_anew(old: Any, self: Any, mesh: str, *, create: bool = False) -> Any:
    """A server on which whoever creates a mesh loses the one that was there."""
    if create:
        self._meshes.pop(mesh, None)
    return old(self, mesh, create=create)


def overwrites(old: Any, self: Any, subject: str, payload: bytes, *rest: Any) -> Any:
    """A log on which the newest record of a subject replaces the one before."""
    before = self.last_on(subject)
    seq = old(self, subject, payload, *rest)
    if before and seq != before:
        self._records[before - 1] = self._records[seq - 1]
    return seq


BREAKS = {
    "S1": (
        Break(
            f"{ENVIRONMENT}:Environment.is_in_memory",
            gives(False),
            "a mesh in memory needs a server",
        ),
    ),
    "S2": (
        Break(
            f"{LOCKS}.table:TRANSITIONS",
            cells_like("LockTake", "held", like="free"),
            "two processes hold one lock",
        ),
        Break(
            "antiphon.engines.memory.server:MemoryServer.mesh",
            around(lambda old, self, mesh, **_: made_anew(old, self, mesh, create=True)),
            "each process has a state of its own",
        ),
    ),
    "S3": (
        Break(
            "antiphon.engines.memory.server:MemoryServer.mesh",
            around(made_anew),
            "whoever comes second makes everything anew",
        ),
    ),
    "S4": (
        Break(
            f"{LOCKS}.state:Hold.is_of",
            calls(lambda self, node, _agent: node == self.node),
            "agents of one node do not exclude each other",
        ),
    ),
    "S5": (Break(f"{LOCKS}.state:Hold.is_over", gives(False), "an expired lock stays taken"),),
    "S6": (Break(f"{LOCKS}.table:pack", gives("0" * 16), "fences do not grow"),),
    "S7": (
        Break(f"{LOCKS}.state:Hold.is_over", gives(False), "a dead holder's lock stays taken"),
        Break(
            "antiphon.core.policy.locks.lock_time:EDIT_MS",
            becomes(3_600_000),
            "a lock lasts an hour unless somebody says otherwise",
        ),
        Break(
            "antiphon.core.policy.locks.lock_time:TASK_MS",
            becomes(30_000),
            "a lock of a long task lasts as long as one of an edit",
        ),
        Break(
            "antiphon.sdk.locks.namespace:Locks._hold_time",
            calls(lambda self, _ttl: self._until_boundary("bar")),
            "a lock lasts for a bar whatever it is for",
        ),
    ),
    "S8": (
        Break(
            "antiphon.core.families.seals.table:_matches",
            gives(True),
            "a seal over other records is accepted",
        ),
        Break("antiphon.runtime.node.sealer:Sealer.is_due", gives(False), "nothing is sealed"),
    ),
    "S9": (
        Break(f"{SENDER}:HttpSender._keep_trying", does_nothing, "nothing is tried again later"),
        Break(
            "antiphon.runtime.messages.message_gate:MessageGate.ack",
            does_nothing,
            "a message that was read comes again",
        ),
    ),
    "S10": (
        Break(f"{SENDER}:replace_file", does_nothing, "a message is sent before it is stored"),
        Break(f"{SENDER}:retrying", with_(retries=0), "a delivery is tried once"),
        Break(
            "antiphon.core.messages.envelope:message_id",
            calls(lambda *_: os.urandom(16).hex()),
            "a message that is delivered twice is stored twice",
        ),
    ),
    "S11": (
        Break(
            "antiphon.core.presence.presence_table:PresenceTable.live",
            around(lambda old, self, now_ms, **_: old(self, now_ms, stale_ms=2**50)),
            "nodes that fell silent are listed as live",
        ),
    ),
    "S12": (
        Break(
            "antiphon.engines.memory.log:LogStore.append",
            around(overwrites),
            "a record on a log is replaced by the next one",
        ),
    ),
    "S13": (
        Break(
            "antiphon.core.families.memory.table:_fits",
            gives(True),
            "a write over a newer revision is accepted",
        ),
        Break(
            "antiphon.runtime.replica.lane_lists:Lists.shared",
            around(lambda old, *args, **how: old(*args, **how)._replace(rows=[])),
            "conflicts are not listed",
        ),
    ),
    "S14": (
        Break(
            "antiphon.runtime.locks.lock_wait:LockWait._until_news",
            calls(looks_often),
            "a waiter reads though nothing has happened",
        ),
        Break(
            "antiphon.runtime.replica.lane_lists:Lists.shared",
            around(filtered_late),
            "a list is cut before it is known what its reader may see",
        ),
        Break(
            "antiphon.runtime.replica.lane_lists:in_turns",
            calls(lambda parties, limit: sorted(chain(*parties))[:limit]),
            "whoever writes most fills a list that is cut",
        ),
    ),
    "S15": (
        Break("antiphon.runtime.retries:backoff_ms", gives(0), "retries do not wait"),
        Break("antiphon.runtime.retries:backoff_ms", with_(chance=0.0), "pauses have no jitter"),
    ),
    "S16": (
        Break(
            "antiphon.runtime.log.breaker_guard:_paused",
            around(lambda old, *given: __import__("antiphon").Unavailable(old(*given).message)),
            "an open breaker has no error of its own",
        ),
        Break(
            "antiphon.core.policy.circuit_breaker:CircuitBreaker.failed",
            gives(None),
            "the breaker never opens",
        ),
        Break(
            "antiphon.sdk.connection.connection_outbox:is_away",
            gives(False),
            "nothing is kept while the engine is away",
        ),
    ),
    "S17": (
        Break(f"{ENVIRONMENT}:Environment.token", gives(None), "ANTIPHON_ENGINE_TOKEN is ignored"),
        Break(f"{ENVIRONMENT}:Environment.key_for", gives(None), "ANTIPHON_NODE is ignored"),
        Break(
            f"{ENVIRONMENT}:Environment.require_only_mesh",
            does_nothing,
            "ANTIPHON_ONLY_MESH is ignored",
        ),
        Break(
            f"{ENVIRONMENT}:_OverriddenHome.mesh",
            calls(lambda self: self.__class__.__mro__[1].mesh(self)),
            "ANTIPHON_ENGINE is ignored",
        ),
        Break(
            f"{ENVIRONMENT}:Environment.make_breaker", gives(None), "ANTIPHON_BREAKER is ignored"
        ),
        Break(
            "antiphon.sdk.http.operator_token:operator_token",
            around(lambda old, folder, _given: old(folder, None)),
            "ANTIPHON_HTTP_TOKEN is ignored",
        ),
        Break(
            f"{ENVIRONMENT}:_OverriddenHome.replica",
            calls(lambda self: self.path / "replica.db"),
            "ANTIPHON_REPLICA is ignored",
        ),
    ),
}
