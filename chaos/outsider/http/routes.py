"""What the outsider tries at every route of every HTTP door: with a credential that is not enough.

The job, the question, the lock and so on that it asks for are others', and it knows their ids. It
gets through if anybody answers it with something of theirs, if a route that it has no right to
answers at all, or if something about them is on the log afterwards.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.core.bar_tokens.bar_token import COMMANDS, EVERY_PROJECT, Role
from antiphon.core.bar_tokens.job_link import JobLink, issue_link
from antiphon.core.bus.http_request import Asked, sign_request
from antiphon.core.ucan import covers
from antiphon.interfaces.http.askers import Signed
from antiphon.runtime.identity.key_files import SeedKeyring
from chaos.cluster.delegating import token_by
from chaos.network.http_wire import Answer, bearer
from chaos.outsider.attacks.forgeries import Forger, grants_of
from chaos.outsider.attempt import Attempt, Outcome
from chaos.outsider.http.doors import (
    Authorize,
    Behind,
    Belongings,
    ask,
    now_ms,
    open_doors,
    set_out,
    written_about_others,
)
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh, canaries_in

PROJECT: Final = "render"
JUNK: Final = "x" * 40
HOUR_MS: Final = 3_600_000
ROLES: Final[tuple[Role, ...]] = ("schedule", "answer", "message", "read", "cancel")
"""Beside `claim`, which the contractor has."""
REFUSED: Final = 400


class Credential(Struct, frozen=True, kw_only=True):
    """What a request is made with."""

    authorize: Authorize = lambda _: ""
    link: str = ""
    headers: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """Under which it counts, for the outsider's own kinds."""
    is_member: bool = False
    """Whether it is good for what a member's signature opens."""

    def opens(self, behind: Behind) -> bool:
        """Whether a route answers it, about what the outsider has itself."""
        if isinstance(behind.route.asker, Signed):
            return self.is_member
        return any(covers(one, need) for one in self.commands for need in behind.commands)


Make = Callable[[TargetMesh, Belongings], Awaitable[Sequence[Credential]]]


class Survey(Struct, frozen=True, kw_only=True):
    """Which routes there are, and which of them answer strangers."""

    routes: int = 0
    tokenless: dict[str, str] = {}
    """Why they may."""
    unstated: int = 0
    """How many do so without saying that they may."""


def fault_of(behind: Behind, credential: Credential, answer: Answer) -> str:
    """What is wrong with an answer; empty: nothing."""
    if canaries_in(answer.body):
        return "shows what is others'"
    if answer.status >= REFUSED or behind.stated or credential.opens(behind):
        return ""
    return f"answers {answer.status}"


def _everywhere(name: str, make: Make) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        others = await set_out(target)
        statuses: Counter[int] = Counter()
        async with open_doors(target) as routes:
            credentials = await make(target, others)
            written = len(await target.read_log())
            for credential in credentials:
                for behind in routes:
                    asked = behind.asked(others)
                    answer = await ask(
                        behind,
                        asked,
                        credential.authorize(asked),
                        link=credential.link,
                        extra=credential.headers,
                    )
                    statuses[answer.status] += 1
                    if fault := fault_of(behind, credential, answer):
                        raise Breach(f"{behind.name} {fault}: {answer.body[:200]!r}")
            if found := await written_about_others(target, written):
                raise Breach(f"something was written on {found[0]}")
        told = ", ".join(f"{status} {count}x" for status, count in sorted(statuses.items()))
        return Outcome("door", f"{statuses.total()} requests: {told}")

    return Attempt(name, act)


async def survey(target: TargetMesh) -> Survey:
    """Ask for everything as a stranger; who answers has to say why."""
    others = await set_out(target)
    found: dict[str, str] = {}
    unstated = 0
    async with open_doors(target) as routes:
        for behind in routes:
            answer = await ask(behind, behind.asked(others))
            if answer.status < REFUSED:
                found[behind.name] = behind.stated
                unstated += not behind.stated
    return Survey(routes=len(routes), tokenless=found, unstated=unstated)


# --- credentials ----------------------------------------------------------------------------------


def _header(text: str) -> Authorize:
    return lambda _: text


async def _nothing(*_: Any) -> Sequence[Credential]:
    return [Credential()]


async def _junk(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    cookies = ("Cookie: session=x; antiphon=x", "Origin: http://127.0.0.1")
    by_nobody = token_by(
        SeedKeyring(secrets.token_bytes(32)), (), mesh=target.mesh, project="*", role="all"
    )
    words = (JUNK, by_nobody)
    return [
        *(Credential(authorize=_header(bearer(one))) for one in words),
        *(Credential(authorize=_header(f"Antiphon {one}")) for one in words),
        Credential(authorize=_header(f"Basic {JUNK}"), headers=cookies),
        *(Credential(link=one) for one in words),
    ]


def _token(target: TargetMesh, role: Role, project: str, **how: Any) -> Credential:
    """By the contractor's key, which may claim; whether or not it may have this one."""
    key = how.pop("key", None) or target.contractor.signer("machine")
    granted = grants_of(target, key.did)
    chain = (granted.get(COMMANDS[role]) or next(iter(granted.values())),)
    text = token_by(key, chain, mesh=target.mesh, project=project, role=role, **how)
    is_its_own = project in (PROJECT, EVERY_PROJECT) and COMMANDS[role] in granted and not how
    commands = (COMMANDS[role],) if is_its_own else ()
    return Credential(authorize=_header(bearer(text)), commands=commands)


async def _own(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    return [_token(target, "claim", PROJECT)]


async def _other_roles(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    """Of members that have another right for its kinds; and roles that it was not given."""
    made = [_token(target, role, PROJECT) for role in ("read", "all", "tempo", "schedule")]
    for role in ROLES:
        home = await target.join(f"may-{role}-{secrets.token_hex(2)}", can=role)
        await target.host.node.session.sync_control()
        made.append(_token(target, role, PROJECT, key=home.signer("machine")))
    return made


async def _other_projects(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    return [
        _token(target, "claim", project) for project in ("build", BUILD, "secret", EVERY_PROJECT)
    ]


async def _expired(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    return [_token(target, "claim", PROJECT, age_ms=age) for age in (HOUR_MS, -HOUR_MS)]


async def _borrowed(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    """Tokens that name the delegations of the victim, of nobody, and of the owner."""
    key, theirs = target.contractor.signer("machine"), target.victim.signer("machine").did
    chains = [(grants_of(target, theirs)["/job/claim"],), (), ("b" + "a" * 58,)]
    texts = [
        token_by(key, chain, mesh=target.mesh, project="build", role="claim") for chain in chains
    ]
    return [Credential(authorize=_header(bearer(text))) for text in texts]


async def _links(target: TargetMesh, others: Belongings) -> Sequence[Credential]:
    """To others' job by itself; the owner's to another job, also one that is over."""
    forger, owner = Forger(target), target.owner.connection
    render = await target.owner.submit(RENDER, "frame")
    hour = now_ms() + HOUR_MS
    own = JobLink(
        delegation=forger.chain("/job/claim"),
        kind=BUILD,
        job=others.job,
        outputs=True,
        until_ms=hour,
    )
    another = JobLink(kind=RENDER, job=render.id, outputs=True, until_ms=hour)
    over = JobLink(kind=BUILD, job=others.job, outputs=True, until_ms=now_ms() - 1)
    by_contractor = (forger.key.did, forger.key.sign)
    by_owner = (owner.keyring.did, owner.keyring.sign)
    texts = [
        issue_link(own, by_contractor, mesh=target.mesh),
        issue_link(another, by_owner, mesh=target.mesh),
        issue_link(over, by_owner, mesh=target.mesh),
    ]
    as_tokens = [Credential(authorize=_header(bearer(text))) for text in texts]
    return [*(Credential(link=text) for text in texts), *as_tokens]


def signed(target: TargetMesh, asked: Asked, key: Any = None) -> str:
    """The header of a request that a key signs; the contractor's by default."""
    key = key or target.contractor.signer("machine")
    signer, nonce = (key.did, key.sign), secrets.token_urlsafe(18)
    return sign_request(asked, signer, mesh=target.mesh, at_ms=now_ms(), nonce=nonce)


async def _signatures(target: TargetMesh, _: Belongings) -> Sequence[Credential]:
    """By its own key, by one that nobody knows, and of another request."""
    unknown, other = SeedKeyring(secrets.token_bytes(32)), Asked("GET", "/v1/other", b"")
    return [
        Credential(authorize=lambda asked: signed(target, asked), is_member=True),
        Credential(authorize=lambda asked: signed(target, asked, unknown)),
        Credential(authorize=lambda _: signed(target, other)),
    ]


HTTP_ROUTES: Final = [
    _everywhere("ask every HTTP route with nothing", _nothing),
    _everywhere("ask every HTTP route with junk", _junk),
    _everywhere("ask every HTTP route for others' with its own token", _own),
    _everywhere("ask every HTTP route with a token of another role", _other_roles),
    _everywhere("ask every HTTP route with a token of another project", _other_projects),
    _everywhere("ask every HTTP route with a token of another time", _expired),
    _everywhere("ask every HTTP route with a chain of others'", _borrowed),
    _everywhere("ask every HTTP route with a link", _links),
    _everywhere("ask every HTTP route with a signature", _signatures),
]
