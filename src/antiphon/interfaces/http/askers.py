"""How a route knows who asks: the only places that turn a request into a party with rights.

Each says in `under` by which right its route answers; the table of routes in SECURITY.md and the
tests that walk all routes read it.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct

from antiphon.errors import Malformed, Rejected
from antiphon.guard import Who
from antiphon.interfaces.http.answers import Refused
from antiphon.sdk.authority.acting import OWN, Acting
from antiphon.sdk.http.node_api import Asked

if TYPE_CHECKING:
    from starlette.requests import Request

    from antiphon.sdk.http.access import Bearer, HttpAccess, JobLink
    from antiphon.sdk.http.deliveries import Deliveries
    from antiphon.sdk.http.node_api import Member, MemberDoor, NodeApi

Linked = Literal["", "story", "outputs"]


class Known(Struct, frozen=True, kw_only=True):
    """Who asks, and what showed it."""

    who: Who
    token: Bearer | None = None
    link: JobLink | None = None
    signer: Member | None = None

    @property
    def bearer(self) -> Bearer:
        """Whoever a token or a link stands for."""
        if self.token is None:
            raise TypeError("this route is not opened by a token")
        return self.token

    @property
    def member(self) -> Member:
        """Whoever signed the request."""
        if self.signer is None:
            raise TypeError("this route is not opened by a signature")
        return self.signer


class Asker(ABC):
    """Who may ask on a route."""

    under: str
    """By which right, in words."""
    needs_body: ClassVar[bool] = False
    """Whether only the body shows who asks."""

    @abstractmethod
    async def identify(self, request: Request, stranger: Who, /) -> Known:
        """Who asks; `Refused` if nothing shows that they may."""


class Anybody(Asker):
    """No right is asked for: `shows` is what everybody may see."""

    def __init__(self, shows: str) -> None:
        self.under = f"nobody's: {shows}"

    async def identify(self, _: Request, stranger: Who, /) -> Known:
        """A stranger."""
        return Known(who=stranger)


class Token(Asker):
    """A bar-bound token or the operator's, for one of these commands; or a link to the job."""

    def __init__(
        self,
        access: HttpAccess,
        commands: tuple[str, ...],
        *,
        every_kind: bool = False,
        is_governing: bool = False,
        linked: Linked = "",
    ) -> None:
        self._access = access
        self._commands = commands
        self._every_kind = every_kind
        self._is_governing = is_governing
        self._linked = linked
        self.under = " or ".join(commands) + (" for every kind" if every_kind else "")

    async def identify(self, request: Request, __: Who, /) -> Known:
        """The bearer of a token, or of a link."""
        header = request.headers.get("authorization", "")
        link = request.query_params.get("link", "") if self._linked else ""
        if link and not header:
            return self._by_link(link, request.path_params["job"])
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused(401, "a token is needed", "token", "send 'Authorization: Bearer TOKEN'")
        try:
            bearer = self._access.admit(token.strip())
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        acts = OWN if self._is_governing else self._access.acting(bearer)
        known = Known(who=Who(party=bearer.party, acts=acts), token=bearer)
        if not bearer.may(*self._commands):
            needs = " or ".join(self._commands)
            raise Refused(403, f"the token's role does not include {needs}", "role", who=known.who)
        if self._every_kind and not bearer.has_every_kind:
            raise Refused(
                403,
                "this is about every kind of job, and the token is for some of them",
                "project",
                "make one with --project '*'",
                who=known.who,
            )
        if self._is_governing and not self._access.may_govern(bearer):
            raise Refused(
                403,
                "only the owner, or the operator of this node, may change the tempo",
                "not_owner",
                who=known.who,
            )
        return known

    def _by_link(self, text: str, job: str) -> Known:
        try:
            bearer, link = self._access.admit_link(text)
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        known = Known(who=Who(party=bearer.party), token=bearer, link=link)
        if job != link.job:
            raise Refused(404, "the link is to another job", "no_job", who=known.who)
        if self._linked == "outputs" and not link.outputs:
            raise Refused(
                403,
                "the link opens the job's story, and not what it wrote",
                "role",
                "ask whoever sent it for one that does: antiphon link JOB --outputs",
                who=known.who,
            )
        return known


class Probe(Asker):
    """Anybody; whoever has a token that may read everything is told more."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self.under = f"nobody's: one word; why, under {token.under}"

    async def identify(self, request: Request, stranger: Who, /) -> Known:
        """A stranger, unless there is a token."""
        if "authorization" not in request.headers:
            return Known(who=stranger)
        return await self._token.identify(request, stranger)


class Signed(Asker):
    """A member that signed this request: its scope decides."""

    under = "the signer's scope"
    needs_body = True

    def __init__(self, door: MemberDoor) -> None:
        self._door = door

    async def identify(self, request: Request, _: Who, /) -> Known:
        """The member whose key signed method, target and body."""
        query = request.scope["query_string"].decode("latin-1")
        path = request.scope.get("raw_path") or request.scope["path"].encode()
        target = path.decode("latin-1") + (f"?{query}" if query else "")
        header = request.headers.get("authorization", "")
        try:
            asked = Asked(request.method, target, await request.body())
            member = self._door.identify(asked, header)
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        return Known(who=Who(party=member.party), signer=member)


class Hook(Asker):
    """Whoever has a webhook's secret."""

    under = "what the operator wrote into webhooks.toml"
    needs_body = True

    def __init__(self, api: NodeApi) -> None:
        self._api = api

    async def identify(self, request: Request, _: Who, /) -> Known:
        """The webhook. What it wants is kept for its answer."""
        name = request.path_params["hook"]
        try:
            request.state.wanted = self._api.wanted(name, request.headers, await request.body())
        except Malformed:
            raise
        except Rejected as refused:
            raise Refused(401, refused.message, refused.reason, refused.hint) from None
        party = f"webhook {name}"
        return Known(who=Who(party=party, acts=Acting(party=party)))


class Letter(Asker):
    """The sender of a message, by its signature."""

    under = "/message/send of the sender"
    needs_body = True

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    async def identify(self, request: Request, _: Who, /) -> Known:
        """For whom the sender acts."""
        try:
            party = await self._deliveries.sender(await request.body())
        except Malformed as problem:
            raise Refused(400, problem.message, problem.reason) from None
        except Rejected as refused:
            raise Refused(403, refused.message, refused.reason, refused.hint) from None
        return Known(who=Who(party=party))


class Browser(Asker):
    """A browser that has signed in as the person at this machine."""

    under = "the person at this machine"

    def __init__(self, session_of: Callable[[Request], str]) -> None:
        """`session_of` names the browser's session; empty: it has none."""
        self._session_of = session_of

    async def identify(self, request: Request, _: Who, /) -> Known:
        """The browser's session."""
        session = self._session_of(request)
        if not session:
            raise Refused(401, "this browser is not signed in", "session")
        who = Who(party=f"browser {session}", acts=OWN)
        own = f"http://{request.headers.get('host', '')}"
        # A browser always says where a form was.
        if request.method == "POST" and request.headers.get("origin", "") != own:
            raise Refused(403, "this was sent by another site", "origin", who=who)
        return Known(who=who)


class Secret(Asker):
    """Whoever knows a path that nobody can guess."""

    under = "the person who was shown the secret address"

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    async def identify(self, request: Request, _: Who, /) -> Known:
        """The person."""
        given = request.path_params["secret"].encode()
        if not hmac.compare_digest(given, self._secret):
            raise Refused(404, "there is nothing here", "no_path")
        return Known(who=Who(party="the secret address"))
