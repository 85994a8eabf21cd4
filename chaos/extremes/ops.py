"""Ops of every class of the protocol, drawn from their schemas and aimed at what exists.

Drawn alone, nearly every op would name nothing, or be under a fence that nobody has: it would be
rejected before a family looks at it. So most are *aimed*: one or two of their fields are made to
fit the lane that they are about, and all others stay as they were drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from msgspec import inspect as schemas
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.authority.delegations import token_of
from antiphon.core.cost.usage import Usage
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs import ops as jobs
from antiphon.core.families.jobs.questions import question_manifest
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.families.jobs.state import HELD, State
from antiphon.core.families.locks import ops as locks
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory import ops as memory
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.mesh import ops as mesh
from antiphon.core.families.plans import ops as plans
from antiphon.core.proof.answer import Question
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.op import Op
from antiphon.core.ucan import Payload, Policy
from antiphon.ports import Keyring
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from antiphon.runtime.log.session import Session
from antiphon.runtime.replica.replica_jobs import job_records
from chaos.extremes.known import KINDS, WORKED, Known
from chaos.extremes.values import Extremes

AIMED: Final = 0.85
WILD: Final = 0.15
"""How often a field that decides early is left as it was drawn."""
WEIGHTS: Final[dict[type[Op], int]] = {
    jobs.JobSchedule: 16,
    jobs.JobClaim: 16,
    jobs.JobComplete: 12,
    jobs.JobYield: 10,
    plans.PlanPut: 5,
    locks.LockTake: 8,
    locks.LockRelease: 4,
    memory.MemoryPut: 8,
}
"""How often an op of a class is written; the others once in a hundred or so each."""
BY_HOLDER: Final = (jobs.JobStart, jobs.JobComplete, jobs.JobYield, jobs.JobArtifact)
CONTROL: Final = frozenset({"mesh", "grants", "seals"})
"""Families that only the owner, or the coordinator, writes."""
ARGUMENTS: Final = (
    *('{"args":[],"kwargs":{}}', "{}", "", "\x00", "[" * 900, '{"args":[1e999],"kwargs":{}}'),
    *('{"args":["\\ud800"],"kwargs":{}}', '{"args":' + "[" * 5_000 + "]" * 5_000 + "}"),
)

ASKED: Final = 0.1
"""How often a job is a question."""
SCHEMA_WORDS: Final = (
    *("type", "enum", "minimum", "maximum", "minLength", "maxItems", "properties", "required"),
    *("additionalProperties", "items", "title", "default", "$ref"),
)
DEEPEST: Final = 10
"""More than a schema may be nested."""
ANY_JSON: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**64 - 1, 1e308, "", "string", "object", "\x00"),
    *([], ["string"], [[]], {}, {"string": 1}),
)


class Drawn(Struct, frozen=True):
    """An op to be written, and by which of the writers; None: any of them."""

    op: type[Op]
    body: Any
    by: str | None = None


def body_of(op: type[Op]) -> Any:
    """The type of an op's body."""
    found = schemas.type_info(op)
    if not isinstance(found, schemas.StructType):
        raise TypeError(op)
    (body,) = (field.type for field in found.fields if field.name == "body")
    return body


class Drawer:
    """Draws the ops of some families."""

    def __init__(self, extremes: Extremes, known: Known, families: tuple[str, ...]) -> None:
        self._extremes = extremes
        self._known = known
        self._chance = extremes.chance
        self._workers = known.dids[:-1]
        """The last of the writers may not claim."""
        self.classes = [op for op, family in PROTOCOL.family_of.items() if family.name in families]
        self._bodies = {op: body_of(op) for op in self.classes}
        self._weights = [WEIGHTS.get(op, 1) for op in self.classes]

    def next(self) -> Drawn:
        """Any op."""
        (op,) = self._chance.choices(self.classes, self._weights)
        return self.of(op)

    def of(self, op: type[Op]) -> Drawn:
        """An op of this class."""
        body = self.body(op)
        return self.aimed(op, body) if self._chance.random() < AIMED else Drawn(op, body)

    def body(self, op: type[Op]) -> Any:
        """The body of such an op, as its schema admits it."""
        return self._extremes.value(self._bodies[op], "")

    def aimed(self, op: type[Op], body: Any) -> Drawn:
        """The op with what fits the lane that it is about."""
        aim = AIMS.get(op)
        return Drawn(op, body) if aim is None else aim(self, body)

    # --- jobs -----------------------------------------------------------------------------------

    def content(self, kind: str) -> manifest.Manifest:
        """What a job runs."""
        choice = self._chance.choice
        command = [f"@{kind}"] if kind == WORKED else choice((["true"], [f"@{kind}"], ["x"] * 1024))
        drawn = manifest.author(
            {
                "command": command,
                "args": [choice(ARGUMENTS)],
                "timeout": choice((0, 1, 30, manifest.MAX_TIMEOUT_S)),
            }
        )
        inputs: list[manifest.Input] = [manifest.NonceInput(nonce=self._chance.randbytes(8).hex())]
        for _ in range(choice((0, 0, 0, 1, 3))):
            of = self._known.job_key()
            if of is not None:
                name, output = choice(("/args/0", "f", "x" * 255)), choice((UNSET, "result", "o"))
                inputs.append(manifest.ResultInput(of=of, name=name, output=output))
        if self._chance.random() < 0.1:
            given = manifest.BlobInput(
                algo="blake3", hash=choice(self._known.digests), size=choice((0, 2**53 - 1))
            )
            inputs.append(replace(given, name=choice(("arguments", "z"))))
        return replace(drawn, inputs=tuple(inputs))

    def schedule(self, body: jobs.ScheduleBody) -> Drawn:
        """A job of a kind that the writers may submit."""
        kind = self._chance.choice((*KINDS, *KINDS, WORKED))
        fields: dict[str, Any] = {"kind": kind, "manifest": self.content(kind)}
        fields |= {"replica": None, "derived": None}  # only the coordinator writes those
        for names in (
            ("replicas", "quorum"),
            ("lease_ms", "lease_ms_max"),
            ("start_by", "not_before"),
            ("after", "concurrency"),
        ):
            if self._chance.random() > WILD:
                fields |= {name: () if name == "after" else None for name in names}
        if self._chance.random() < ASKED:
            question = self.question()
            nonce = manifest.NonceInput(nonce=self._chance.randbytes(8).hex())
            fields |= {"manifest": question_manifest(question, nonce), "question": question}
        return Drawn(jobs.JobSchedule, replace(body, **fields))

    def question(self) -> Question:
        """A question whose schema has any JSON at any place of a schema."""
        return Question(text="?", schema=msgspec.json.encode(self.schema(0)).decode())

    def schema(self, depth: int) -> Any:
        """A schema, as strangers may write it."""
        chance = self._chance
        drawn = {
            word: chance.choice(ANY_JSON)
            for word in chance.sample(SCHEMA_WORDS, chance.choice((0, 1, 1, 3)))
        }
        if depth < DEEPEST and chance.random() < 0.5:
            inner = self.schema(depth + 1)
            drawn |= chance.choice(({"items": inner}, {"properties": {"n": inner}}))
        return drawn

    def about_job(self, op: type[Op], body: Any) -> Drawn:
        """An op about a job that exists, under its fence, by whoever holds it."""
        job = self._known.job_in(HELD if op in BY_HOLDER else None)
        if op is jobs.JobClaim and self._chance.random() < 0.7:
            job = self._known.job_in((State.PENDING,))
        if job is None:
            return Drawn(op, body)
        fields: dict[str, Any] = {"kind": job.kind, "job": job.id}
        by = job.claimer if job.claimer in self._known.dids else self._chance.choice(self._workers)
        if job.fence and "fence" in body.__struct_fields__:
            fields["fence"] = job.fence
        if op is jobs.JobClaim:
            if self._chance.random() > WILD:
                fields["lease_ms"] = job.lease_ms
            if job.state not in HELD:
                fields |= {"fence": None, "checkpoint": None, "beats_left": None}
        if isinstance(body, jobs.ArtifactBody) and self._chance.random() > WILD:
            fields |= {"n": count_of(job, body.as_)}
            fields |= {"digest": None, "size": None} if body.value is not None else {}
        return Drawn(op, replace(body, **fields), by)

    def yields(self, body: jobs.YieldBody) -> Drawn:
        """A job that is given back, often to wait for others: also for itself."""
        drawn = self.about_job(jobs.JobYield, body)
        if self._chance.random() < 0.5:
            return drawn
        after = body.after or (self._known.job_key() or ("x.a", "0" * 64),)
        if self._chance.random() < 0.1:
            after = ((drawn.body.kind, drawn.body.job),)
        return replace(drawn, body=replace(drawn.body, reason="after", after=after))

    def complete(self, body: jobs.CompleteBody) -> Drawn:
        """An end; its proof is made when its author is known."""
        outputs = []
        for one in body.outputs[:2]:
            text = self._chance.choice(("null", '"x"', "\x01" * 9_000, '"' + "y" * 20_000 + '"'))
            name = self._chance.choice(("result", "o"))
            fits = replace(one, name=name, text=text, stored=None)
            outputs.append(fits if self._chance.random() < 0.8 else one)
        return self.about_job(jobs.JobComplete, replace(body, outputs=tuple(outputs), proof=None))

    # --- plans, locks, documents ----------------------------------------------------------------

    def plan(self, body: Any) -> Drawn:
        """A plan whose jobs could be submitted; its trigger is as it was drawn."""
        aimed = self.schedule(body).body
        single = ("start_by", "not_before", "retry_of", "lease_ms", "lease_ms_max")
        return Drawn(plans.PlanPut, replace(aimed, **dict.fromkeys(single)))

    def lock(self, op: type[Op], body: Any) -> Drawn:
        """A lock as it stands: by its holder and under its fence, or without one if it is free.

        The last of the writers may break what others hold.
        """
        lock = self._known.state(lock_key(body.kind, body.key))
        hold = lock.hold if lock is not None else None
        is_over = hold is None or hold.deadline_ms < self._known.now_ms
        fields: dict[str, Any] = {}
        if "ttl_ms" in body.__struct_fields__ and self._chance.random() > WILD:
            fields["ttl_ms"] = self.ttl_ms()
        if op is locks.LockBreak:
            return Drawn(
                op, replace(body, fence=hold.fence if hold else None), self._known.dids[-1]
            )
        if is_over or hold is None:
            free = {} if op is locks.LockRelease else {"fence": None}
            return Drawn(op, replace(body, **fields, **free))
        if "agent" in body.__struct_fields__:
            fields["agent"] = hold.agent
        if isinstance(body, locks.ReleaseBody) and body.pass_to is not None:
            fields["pass_to"] = replace(body.pass_to, ttl_ms=self.ttl_ms())
        return Drawn(op, replace(body, **fields, fence=hold.fence), hold.node)

    def ttl_ms(self) -> int:
        """From the shortest to the longest that the rules of the run allow."""
        return self._chance.choice((1_000, 1_001, 2_000, 60_000, 3_599_999, 3_600_000))

    def document(self, body: memory.MemoryBody) -> Drawn:
        """A document as it stands: from its revision, or knowingly from an older one."""
        document = self._known.state(document_key(body.kind, body.key))
        revision, siblings = (document.revision, document.siblings) if document else (0, ())
        choice = self._chance.choice
        base, found = choice(((revision, None), (revision, revision), (0, revision)))
        fields: dict[str, Any] = {"base": base, "found": found, "strategy": choice(_STRATEGIES)}
        aimed = replace(body, **fields, resolves=(), keeps=siblings)
        if aimed.is_deferred:
            return Drawn(memory.MemoryPut, replace(aimed, keeps=()))
        many = self._chance.choice((0, 0, 1, len(siblings)))
        resolved = tuple(one.op for one in siblings[:many])
        aimed = replace(aimed, resolves=resolved, keeps=siblings[many:])
        return Drawn(memory.MemoryPut, aimed)

    # --- control --------------------------------------------------------------------------------

    def delegation(self, by: Keyring, owner: str) -> DelegateBody:
        """A delegation at the ends of what one can say."""
        choice = self._chance.choice
        payload = Payload(
            iss=by.did,
            aud=choice(self._known.dids),
            sub=choice((owner, None)),
            cmd=choice(("/", "/job/claim", "/message/send", "/" + "a" * 200)),
            pol=Policy(choice(([], [["==", ".kind", "x" * 500]], [["like", ".kind", "*" * 60]]))),
            nonce=self._chance.randbytes(choice((12, 64))),
            exp=choice((None, 0, 2**53 - 1)),
            meta=choice((UNSET, {"alias": "a" * 64, "network": True})),
        )
        made = by.delegate(payload)
        self._known.cids.append(made.cid)
        return DelegateBody(token=token_of(made.raw))


_STRATEGIES: Final = ("remote", "local", "defer", "defer")


def proved(session: Session, body: jobs.CompleteBody, known: Known) -> jobs.CompleteBody | None:
    """A completion with the proof that its job asks for; None if nobody submitted that job."""
    for stored in job_records(known.replica, body.kind, body.job):
        op = session.open(stored.record).op
        if isinstance(op, jobs.JobSchedule):
            run = Run(
                manifest=op.body.manifest,
                usage=Usage(wall_ms=1),
                runner=python_runner(),
            )
            return prove(session, body, run)
    return None


Aim = Callable[[Drawer, Any], Drawn]


def _about(op: type[Op]) -> Aim:
    return lambda drawer, body: drawer.about_job(op, body)


def _lock(op: type[Op]) -> Aim:
    return lambda drawer, body: drawer.lock(op, body)


AIMS: Final[dict[type[Op], Aim]] = {
    jobs.JobSchedule: Drawer.schedule,
    jobs.JobYield: Drawer.yields,
    jobs.JobComplete: Drawer.complete,
    **{
        op: _about(op)
        for op in (
            jobs.JobOffer,
            jobs.JobClaim,
            jobs.JobStart,
            jobs.JobArtifact,
            jobs.JobExpire,
            jobs.JobResolve,
            jobs.JobCancel,
            jobs.JobEvict,
        )
    },
    plans.PlanPut: Drawer.plan,
    **{op: _lock(op) for op in (locks.LockTake, locks.LockRelease, locks.LockBreak)},
    memory.MemoryPut: Drawer.document,
}
OWNED: Final = (mesh.MeshRules, mesh.MeshRoute, mesh.MeshTempo, UcanDelegate, UcanRevoke)
"""What the owner itself writes: each is undone, or concerns nothing that the run needs."""
decode_errors: Final = (msgspec.MsgspecError, ValueError, TypeError)
