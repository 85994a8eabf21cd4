"""The HTTP interface beside a full node or a worker. Loads the packages of `antiphon[http]`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from antiphon.interfaces.http.application import ProbeRoutes
    from antiphon.sdk.http.access import HttpAccess
    from antiphon.sdk.http.deliveries import Deliveries
    from antiphon.sdk.http.node_api import NodeApi
    from antiphon.sdk.http.node_view import NodeView
    from antiphon.sdk.http.tempo_admin import TempoAdmin
    from antiphon.sdk.http.worker_view import WorkerView
    from antiphon.settings import HttpAddress

_EXTRA: Final = frozenset({"h11", "jinja2", "prometheus_client", "starlette", "uvicorn"})


def node_server(
    view: NodeView,
    access: HttpAccess,
    tempo: TempoAdmin,
    deliveries: Deliveries,
    api: NodeApi,
    address: HttpAddress,
) -> AbstractAsyncContextManager[int]:
    """Answer HTTP about a node while a block runs; the port."""

    def routes() -> ProbeRoutes:
        from antiphon.interfaces.http.application import NodeRoutes

        return NodeRoutes(view, access, tempo, deliveries, api)

    return _server(routes, address)


def worker_server(
    view: WorkerView, access: HttpAccess, address: HttpAddress
) -> AbstractAsyncContextManager[int]:
    """Answer HTTP about a worker while a block runs; the port."""

    def routes() -> ProbeRoutes:
        from antiphon.interfaces.http.application import ProbeRoutes

        return ProbeRoutes(view, access)

    return _server(routes, address)


def _server(
    routes: Callable[[], ProbeRoutes], address: HttpAddress
) -> AbstractAsyncContextManager[int]:
    with installed():
        from antiphon.interfaces.http.application import make_application
        from antiphon.interfaces.http.bounded_server import serving
    return serving(make_application(routes(), host=address.host), address)


@contextmanager
def installed() -> Iterator[None]:
    """Import the packages of the extra in the block; `Misconfigured` if they are not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _EXTRA:
            raise
        raise Misconfigured(
            "the packages of the HTTP interface are not installed",
            hint="pip install 'antiphon[http]'",
        ) from None
