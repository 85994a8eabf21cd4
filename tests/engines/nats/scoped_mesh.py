"""A mesh with a gate, and members who may read some kinds only."""

import asyncio
import json
from contextlib import asynccontextmanager

from antiphon.core.authority.scope import Scope
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import subjects
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.nats import (
    LocalServer,
    Login,
    MemberRequests,
    NatsEngine,
    Reader,
    ReadService,
)
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.log.streams import log_name
from antiphon.engines.nats.server.process import ServerUser
from antiphon.testing.engine_suite.harness import job_id, new_mesh
from tests.engines.nats.harness import connect
from tests.job_scopes import BRANCHES, job_scope
from tests.patience import PATIENCE_S

MEMBER, STRANGER = "UMEMBER", "USTRANGER"

STORY = (
    ("ctl.genesis", 0),  # 1
    (f"jobs.1.render.video.{job_id(1)}", 0),
    (f"jobs.1.secret.x.{job_id(2)}", 0),
    (f"jobs.job.render.video.{job_id(1)}", 0),  # 4
    (f"jobs.job.secret.x.{job_id(2)}", 0),
    (f"jobs.job.render.video.{job_id(1)}", 4),
    ("ctl.rules", 0),  # 7
    (f"jobs.wait.render.audio.mix.{job_id(3)}", 0),
    (f"jobs.0.render.audio.mix.{job_id(3)}", 0),
    (f"jobs.job.render.{job_id(4)}", 0),  # 10: not below `render`
    ("seal", 0),
    (f"jobs.job.render.video.deep.{job_id(5)}", 0),
    (f"jobs.job.secret.x.{job_id(2)}", 5),  # 13
)
IN_RENDER = [1, 2, 4, 6, 7, 8, 9, 11, 12]


class Server(LocalServer):
    """Gives its users what a list cannot say: subjects that they may not hear after all."""

    def _config(self):
        text = super()._config()
        for one in self._users:
            plain = f'"subscribe": {json.dumps(list(one.subscribe))}'
            allow = [subject for subject in one.subscribe if subject[:1] != "!"]
            deny = [subject[1:] for subject in one.subscribe if subject[:1] == "!"]
            assert plain in text
            text = text.replace(plain, f'"subscribe": {json.dumps({"allow": allow, "deny": deny})}')
        return text


def rights(mesh, user, scope):
    """What the second wall lets a member do."""
    stream, visible = log_name(mesh), sight_of(mesh, BRANCHES, scope)
    exact = [one for one in visible.live if one.endswith(".*")]
    exact = [one for one in exact if f"{one}.>" not in visible.live]
    return ServerUser(
        user=user,
        password="pw",
        publish=(
            f"$JS.API.DIRECT.GET.{stream}.{subjects.control(mesh, 'genesis')}",
            f"apg.{mesh}.{user}.>",
        ),
        subscribe=(
            f"_I.{user}.>",
            *(f"apr{one[2:]}" for one in visible.live),
            *(f"!apr{one[2:]}.>" for one in exact),
        ),
    )


class ScopedMesh:
    def __init__(self, mesh, server, owner, scopes):
        self.mesh, self.server, self.owner, self.scopes = mesh, server, owner, scopes
        self._serving = None
        self._ids = 0

    async def open_gate(self):
        self.hearing = MemberRequests(self.owner.log.connection, self.mesh, self.scopes)
        self.gate = ReadService(
            self.owner, lambda user: self.scopes.get(user, Scope()), BRANCHES, hearing=self.hearing
        )
        self._serving = asyncio.ensure_future(self.gate.run())
        await self.gate.ready.wait()

    async def close_gate(self):
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def log_in(self, user=MEMBER, **extra):
        return await NatsEngine.connect(
            self.server.url,
            self.mesh,
            login=Login(user=user, password="pw"),
            inbox_prefix=f"_I.{user}",
            reader=Reader(user, self.scopes[user], BRANCHES, PROTOCOL.rights),
            **extra,
        )

    async def put(self, what, payload=b"", *, after=0):
        self._ids += 1
        subject = f"ap.{self.mesh}.{what}"
        return await self.owner.log.append(
            subject, payload or subject.encode(), message_id=f"{self._ids}", expected_last=after
        )

    async def tell(self, story=STORY):
        for what, after in story:
            await self.put(what, after=after)

    def all_control(self):
        return subjects.all_control(self.mesh)

    def lane(self, kind, number):
        return job_subjects.lane(self.mesh, kind, job_id(number))


@asynccontextmanager
async def scoped_mesh(*reads, stranger=("secret.>",)):
    """A mesh with a story; a member reads the kinds given, a stranger reads others."""
    mesh = new_mesh()
    scopes = {MEMBER: job_scope(reads=reads), STRANGER: job_scope(reads=stranger)}
    users = [rights(mesh, user, scope) for user, scope in scopes.items()]
    async with Server(users=users) as server, await connect(server, mesh) as owner:
        here = ScopedMesh(mesh, server, owner, scopes)
        await here.tell()
        await here.open_gate()
        try:
            yield here
        finally:
            await here.close_gate()


@asynccontextmanager
async def scoped_reader(*reads):
    """The same with the member logged in."""
    async with scoped_mesh(*reads) as here, await here.log_in() as reader:
        yield here, reader


class Wire:
    """Raw questions of one user, and raw answers."""

    def __init__(self, connection, prefix):
        self.connection, self.prefix = connection, prefix
        self.heard = asyncio.Queue()
        connection.listen(f"{connection.inbox}.>", lambda *message: self.heard.put_nowait(message))
        self.denied = []
        connection.watch_denials(lambda subject, _: self.denied.append(subject))

    def send(self, subject, body=b"", reply=None):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = self.connection.inbox + ".1" if reply is None else reply
        self.connection.send(wire.pub(subject.encode(), body, target.encode()))

    async def ask(self, subject, body=b"", within_s=PATIENCE_S):
        """Every message of the answer, as (payload, header)."""
        self.send(subject, body)
        answer = []
        async with asyncio.timeout(within_s):
            while True:
                _, _, payload, header = await self.heard.get()
                answer.append((payload, header))
                if b"Nats-Num-Pending" not in header or header[8:9] == b" ":
                    return answer

    def gate(self, body, verb="get"):
        return self.ask(f"{self.prefix}.{verb}", body)


@asynccontextmanager
async def raw(here, user=MEMBER):
    connection = await Connection.open(
        here.server.url, login=Login(user=user, password="pw"), inbox_prefix=f"_I.{user}"
    )
    try:
        yield Wire(connection, f"apg.{here.mesh}.{user}")
    finally:
        await connection.close()


@asynccontextmanager
async def raw_owner(here):
    connection = await Connection.open(
        here.server.url,
        login=Login(user=here.server.user, password=here.server.password),
        inbox_prefix=f"_I.{MEMBER}",
    )
    try:
        yield Wire(connection, f"apg.{here.mesh}.{MEMBER}")
    finally:
        await connection.close()


def numbers(answer):
    return [wire.read_record(header, b"").seq for _, header in answer if header[8:9] != b" "]
