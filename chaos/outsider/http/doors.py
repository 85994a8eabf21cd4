"""The HTTP doors of the target mesh, and every request that there is behind them.

node     what `antiphon up --http` opens: probes, `/v1`, `/v1/log` and the like
worker   what `antiphon worker --http` opens
pages    the pages for people
verify   the page of `antiphon verify --open`

The requests follow from the doors' own routes: a new route is tried as soon as it exists.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from antiphon.core.bus.http_request import Asked
from antiphon.interfaces.http.application import NodeRoutes, ProbeRoutes, make_application
from antiphon.interfaces.http.askers import Anybody, Probe
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.pages import verify_page
from antiphon.interfaces.http.pages.dashboard import make_dashboard
from antiphon.interfaces.http.route import Route
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.sdk.dashboard.source import Source
from antiphon.sdk.http.access import open_to, open_worker_to
from antiphon.settings import HttpAddress
from chaos.network.http_wire import Answer, Wire, request
from chaos.outsider.target import BUILD, TargetMesh

SPACE: Final = "build.notes"
ASKED: Final = "build.ask"
HOLD_S: Final = 600
_PART: Final = re.compile(r"{(\w+)(?::\w+)?}")
_COMMAND: Final = re.compile(r"/[a-z]+(?:/[a-z]+)?")


class Belongings(Struct, frozen=True, kw_only=True):
    """What others have on the mesh; all of it has a canary in it."""

    job: str
    """Done, with a result."""
    question: str
    """Open."""


class Behind(Struct, frozen=True):
    """One verb of one route of a door."""

    door: str
    port: int
    route: Route
    method: str

    @property
    def name(self) -> str:
        return f"{self.door} {self.method} {self.route.path}"

    @property
    def stated(self) -> str:
        """Why it may answer everybody; empty: it does not say that it may."""
        is_open = isinstance(self.route.asker, Anybody | Probe)
        return self.route.asker.under.removeprefix("nobody's: ") if is_open else ""

    @property
    def commands(self) -> tuple[str, ...]:
        """Under which it answers whoever has a token."""
        return tuple(_COMMAND.findall(self.route.asker.under))

    def asked(self, others: Belongings) -> Asked:
        """A request for what others have."""
        about = others.question if "/questions/" in self.route.path else others.job
        known = {
            "name": "result" if self.door == "node" else "tokens.css",
            "space": SPACE,
            "kind": BUILD,
            "hook": "any",
            "reason": "ok",
            "message": "0" * 32,
            "secret": "any",
            "room": "any",
        }
        path = _PART.sub(lambda part: known.get(part[1], about), self.route.path)
        query = f"?kind={BUILD}&scope={SPACE}&limit=500" if self.method == "GET" else ""
        body = (
            b"" if self.method == "GET" else json.dumps(_BODIES.get(self.route.path, {})).encode()
        )
        return Asked(self.method, path + query, body)


_BODIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/jobs": {"kind": BUILD, "args": ["of somebody else"]},
    "/v1/questions/{job}/answer": {"answer": "yes"},
    "/v1/messages": {"to": "owner", "kind": BUILD, "payload": "of somebody else"},
    "/v1/messages/{message}/ack": {"receipt": 1},
    "/v1/log": {"ask": "read", "after": 0, "subject": ">"},
}
"""What has to be said before a right is looked at; elsewhere nothing has."""

Authorize = Callable[[Asked], str]
"""The `Authorization` header of a request; empty: none."""
_sources: Final = itertools.count()


def somewhere() -> str:
    """An address of this machine from which nobody has asked: strangers are counted by it."""
    number = next(_sources)
    return f"127.2.{number // 250 % 250}.{number % 250 + 1}"


async def ask(
    behind: Behind, asked: Asked, header: str = "", *, link: str = "", extra: tuple[str, ...] = ()
) -> Answer:
    """One request on a connection of its own."""
    target = asked.target
    if link:
        target += f"{'&' if '?' in target else '?'}link={link}"
    wire = Wire(behind.port, source=somewhere())
    try:
        await wire.send(request(asked.method, target, asked.body, header, extra))
        head = await wire.head()
        is_endless = head.headers.get("content-type", "").startswith("text/event-stream")
        body = await wire.piece() if is_endless else await wire.body(head)
        return head._replace(body=body)
    finally:
        wire.close()


@asynccontextmanager
async def open_doors(target: TargetMesh) -> AsyncIterator[list[Behind]]:
    """All doors while the block runs; what is behind them."""
    loopback = HttpAddress("127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        node = NodeRoutes(*await start(open_to(target.owner, target.host.node, None)))
        worker = target.working.worker
        if worker is None:
            raise TypeError("the victim does not work")
        view = await start(open_worker_to(target.working.mesh, worker, None))
        pages, end = make_dashboard(Source(target.owner, "outsider", target.host.node), SignIn())
        stack.callback(end)
        doors = {
            "node": make_application(node),
            "worker": make_application(ProbeRoutes(*view)),
            "pages": pages,
            "verify": verify_page.make_application("secret", None, owner=None),
        }
        found = list[Behind]()
        for name, door in doors.items():
            found += _behind(name, await start(serving(door, loopback)), door)
        yield found


def _behind(name: str, port: int, door: Door) -> Iterator[Behind]:
    for route in door.routes:
        for method in route.methods:
            yield Behind(name, port, route, method)


async def set_out(target: TargetMesh) -> Belongings:
    """Have the owner and the victim leave something behind in every list."""
    owner = target.owner
    handle = await owner.submit(BUILD, target.canary())
    await handle.result()
    question = await owner.questions.ask(target.canary(), kind=ASKED)
    await owner.memory[SPACE].put(target.canary(), target.canary())
    await owner.locks.hold(target.canary(), scope=SPACE, ttl=HOLD_S).take()
    await owner.messages.send(owner.messages.address, target.canary(), kind="build.note")
    await target.host.node.session.sync_control()
    return Belongings(job=handle.id, question=question.id)


async def written_about_others(target: TargetMesh, since: int) -> list[str]:
    """The subjects below `build` that somebody wrote on."""
    records = await target.read_log(since)
    return [one.subject for one in records if ".build." in f"{one.subject}."]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
