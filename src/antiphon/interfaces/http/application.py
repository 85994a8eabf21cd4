"""The ASGI application of a full node; a worker's has the first four paths.

    GET  /healthz                     ok                                     no token
    GET  /readyz                      ok, degraded, or not ready with 503    no token; with one, why
    GET  /metrics                     Prometheus' text                       read, every project
    GET  /v1/status                   whether it is ready, and why not       read, every project
    GET  /v1/tempo                    the tempo in force, and the policy     read or tempo
    PUT  /v1/tempo                    replaces the policy                    owner or operator
    POST /v1/tempo/freeze, unfreeze   holds the tempo, or lets it change     owner or operator
    POST /v1/a2a/deliver              stores a message for an agent          the sender's signature
    …    /v1/jobs and others          `endpoints.py` lists them              by role and project
    …    /v1/offers, lanes, records   `member_routes.py`, for workers        the asker's signature

Without a token there is one word, except for messages and for members that sign each request: the
delegations of whoever signed decide. Everything else needs `Authorization: Bearer` with the
operator's token or a bar-bound one. All requests pass one `Door`.
Tokens are not logged, and neither are headers, bodies or query strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from antiphon.errors import Malformed, RateLimited, Rejected
from antiphon.guard import Guard
from antiphon.interfaces.http.answers import HEADERS, Refused, fields_of, json_of, too_many, word
from antiphon.interfaces.http.api_routes import ApiRoutes
from antiphon.interfaces.http.askers import Letter, Probe, Token
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.member_routes import MemberRoutes
from antiphon.interfaces.http.prometheus_text import MetricsPage
from antiphon.interfaces.http.route import REQUESTS, Known, Route
from antiphon.sdk.http.access import READ_BY, TEMPO_BY

if TYPE_CHECKING:
    from starlette.requests import Request

    from antiphon.sdk.http.access import HttpAccess
    from antiphon.sdk.http.deliveries import Deliveries
    from antiphon.sdk.http.node_api import NodeApi
    from antiphon.sdk.http.node_view import NodeView
    from antiphon.sdk.http.tempo_admin import TempoAdmin
    from antiphon.sdk.http.worker_view import WorkerView


class ProbeRoutes:
    """What each path answers that nodes and workers have."""

    def __init__(
        self, view: NodeView | WorkerView, access: HttpAccess, guard: Guard | None = None
    ) -> None:
        """`guard` is the process's; None: nothing else answers there."""
        self.guard = guard or Guard()
        self._view = view
        self._access = access
        self._metrics = MetricsPage(view)

    async def health(self, _: Request, __: Known) -> Response:
        """Alive: the event loop answers."""
        return word("ok")

    async def ready(self, _: Request, known: Known) -> Response:
        """Ready: connected and caught up. Whoever may read everything is told why not."""
        status = self._view.status()
        words: tuple[str, ...] = (status.readiness,)
        if known.token is not None:
            words += status.reasons
        return word("\n".join(words), 503 if status.readiness == "not ready" else 200)

    async def metrics(self, request: Request, _: Known) -> Response:
        """Everything that is counted; it is about the whole mesh."""
        text, content_type = self._metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={**HEADERS, "Content-Type": content_type})

    async def status(self, _: Request, __: Known) -> Response:
        """How the node is, with reasons."""
        return json_of(self._view.status())

    def routes(self) -> list[Route]:
        """The paths."""
        everything = Token(self._access, READ_BY, every_kind=True)
        probe = Probe(everything)
        return [
            Route(path="/healthz", answer=self.health, asker=probe, limits=REQUESTS, is_probe=True),
            Route(path="/readyz", answer=self.ready, asker=probe, limits=REQUESTS, is_probe=True),
            Route(path="/metrics", answer=self.metrics, asker=everything, limits=REQUESTS),
            Route(path="/v1/status", answer=self.status, asker=everything, limits=REQUESTS),
        ]


class NodeRoutes(ProbeRoutes):
    """What each path of a full node answers."""

    def __init__(
        self,
        view: NodeView,
        access: HttpAccess,
        tempo: TempoAdmin,
        deliveries: Deliveries,
        api: NodeApi,
    ) -> None:
        super().__init__(view, access, api.guard)
        self._api = ApiRoutes(api, access)
        self._members = MemberRoutes(api.members, api.member_log)
        self._deliveries = deliveries
        self._tempo = tempo

    async def tempo(self, _: Request, __: Known) -> Response:
        """The tempo in force."""
        return json_of(self._tempo.now())

    async def set_tempo(self, request: Request, _: Known) -> Response:
        """Another policy, from the next downbeat on."""
        return json_of(await self._tempo.set(fields_of(await request.body())))

    async def freeze(self, _: Request, __: Known) -> Response:
        """The tempo stays where it is."""
        return json_of(await self._tempo.freeze())

    async def unfreeze(self, _: Request, __: Known) -> Response:
        """The tempo may follow the load again."""
        return json_of(await self._tempo.unfreeze())

    async def deliver(self, request: Request, known: Known) -> Response:
        """A message for an agent's inbox; the same one again is answered the same."""
        try:
            stored = await self._deliveries.deliver(await request.body(), by=known.who.party)
        except Malformed as problem:
            raise Refused(400, problem.message, problem.reason) from None
        except Rejected as refused:
            raise Refused(403, refused.message, refused.reason, refused.hint) from None
        except RateLimited as limited:
            raise too_many(limited.retry_s, limited.message, limited.hint) from None
        return json_of({"id": stored.id, "is_duplicate": stored.is_duplicate})

    def routes(self) -> list[Route]:
        """The paths."""
        reads = Token(self._access, (*READ_BY, *TEMPO_BY))
        governs = Token(self._access, TEMPO_BY, every_kind=True, is_governing=True)
        tempo = "/v1/tempo"
        return [
            *super().routes(),
            Route(path=tempo, answer=self.tempo, asker=reads, limits=REQUESTS),
            Route(
                path=tempo, answer=self.set_tempo, asker=governs, limits=REQUESTS, methods=("PUT",)
            ),
            Route(
                path="/v1/tempo/freeze",
                answer=self.freeze,
                asker=governs,
                limits=REQUESTS,
                methods=("POST",),
            ),
            Route(
                path="/v1/tempo/unfreeze",
                answer=self.unfreeze,
                asker=governs,
                limits=REQUESTS,
                methods=("POST",),
            ),
            Route(
                path="/v1/a2a/deliver",
                answer=self.deliver,
                asker=Letter(self._deliveries),
                limits=REQUESTS,
                methods=("POST",),
            ),
            *self._api.routes(),
            *self._members.routes(),
        ]


def make_application(routes: ProbeRoutes, *, host: str = "") -> Door:
    """The application for one node or worker that listens on this address."""
    return Door(routes.routes(), routes.guard, host=host)
