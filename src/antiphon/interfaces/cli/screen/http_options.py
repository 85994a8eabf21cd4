"""`--http`, which `node`, `worker` and `up` share, and the dashboard beside a node."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.screen.command import Options
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import print_json
from antiphon.interfaces.cli.screen.terminal import out

if TYPE_CHECKING:
    from antiphon.sdk.hosting.hosted_mesh import FullNode
    from antiphon.sdk.mesh import Mesh
    from antiphon.settings import HttpAddress, Settings


@dataclass(frozen=True)
class HttpOptions(Options):
    """`--http` and `--http-exposed`."""

    http: str = typer.Option(
        "",
        metavar="HOST:PORT",
        help="Serve probes and metrics there, such as 127.0.0.1:7464. Needs antiphon[http]."
        " Default: ANTIPHON_HTTP_ADDRESS, or nowhere.",
    )
    http_exposed: bool = typer.Option(
        False,
        "--http-exposed",
        help="Let --http name an address that other machines reach. Tokens are then readable"
        " on the network: put TLS in front of it.",
    )


def http_address(typed: HttpOptions, settings: Settings) -> HttpAddress | None:
    """Where to serve HTTP; None for nowhere."""
    from antiphon.settings import read_address

    asked = typed.http or settings.http_address
    if not asked:
        return None
    try:
        address = read_address(asked)
    except ValueError as problem:
        raise WrongUsage(f"--http {typed.http}: {problem}") from None
    if not address.is_loopback and not typed.http_exposed:
        raise Misconfigured(
            f"other machines could reach {address}, and tokens are not encrypted on their way",
            hint="use 127.0.0.1; or put TLS in front of it and add --http-exposed",
        )
    return address


async def serve_http(
    stack: AsyncExitStack,
    serving: tuple[Settings, HttpAddress | None],
    mesh: Mesh,
    running: Any,
    gate: Any = None,
) -> str:
    """Answer for a node or a worker until the stack ends; where, or empty if nobody asked."""
    settings, address = serving
    if address is None:
        return ""
    from antiphon.interfaces.http import node_server as servers
    from antiphon.sdk.http import access
    from antiphon.sdk.worker import Worker

    is_worker = isinstance(running, Worker)
    open_to: Any = access.open_worker_to if is_worker else access.open_to
    serve: Any = servers.worker_server if is_worker else servers.node_server
    shown = await stack.enter_async_context(open_to(mesh, running, settings.http_token))
    if gate is not None:
        shown[0].gate = gate
    port = await stack.enter_async_context(serve(*shown, address))
    return str(address._replace(port=port))


def say_http(mesh: Mesh, where: str, settings: Settings, *, further: str = "") -> None:
    """Print where it answers, and where the token is."""
    from antiphon.sdk.http.operator_token import FILE

    out.say(
        f"  http     http://{where}/healthz, /readyz; with a token /metrics, /v1/status{further}"
    )
    given = settings.http_token is not None
    out.say(f"  token    {'ANTIPHON_HTTP_TOKEN' if given else mesh.home.path / FILE}")


async def serve_dashboard(
    stack: AsyncExitStack,
    mesh: Mesh,
    name: str,
    node: FullNode | None = None,
    *,
    must: bool = False,
    is_service: bool = True,
    as_json: bool = False,
) -> str:
    """Serve the dashboard on loopback until the stack ends; a link that signs in once, or its file.

    Where the packages of `antiphon[http]` are not installed: empty, or an error if it must be.
    Whenever a link was used, the next one is printed. What a service prints may be a log, so there
    the link is in a private file instead, unless a person looks at a terminal.
    """
    from antiphon.interfaces.http.node_server import installed
    from antiphon.sdk.dashboard.sign_in import LinkFile, SignIn
    from antiphon.sdk.dashboard.source import Source
    from antiphon.settings import HttpAddress

    try:
        with installed():
            from antiphon.interfaces.http.bounded_server import serving
            from antiphon.interfaces.http.pages.dashboard import make_dashboard
    except Misconfigured:
        if must:
            raise
        return ""
    sign_in = SignIn()
    pages, end_streams = make_dashboard(Source(mesh, name, node), sign_in)
    port = await stack.enter_async_context(serving(pages, HttpAddress("127.0.0.1", 0)))
    stack.callback(end_streams)
    start = f"http://127.0.0.1:{port}/sign-in/"

    file = stack.enter_context(LinkFile(mesh.home.path))

    def told(secret: str) -> str:
        if not is_service or (out.is_terminal and not as_json):
            return f"{start}{secret}"
        return file.keep(f"{start}{secret}")

    def tell(secret: str) -> None:
        if as_json:
            print_json({"event": "dashboard", "dashboard": told(secret)})
        else:
            out.say(f"The link to the dashboard was used. The next: {told(secret)}")

    sign_in.tell = tell
    return told(sign_in.link())


def say_dashboard(link: str) -> None:
    """Print where to look."""
    if link:
        out.say(f"  look     {link}")
        is_file = not link.startswith("http")
        out.say(
            f"           {'has a link that ' * is_file}signs one browser in, once, within an hour"
        )
    else:
        out.say("  look     in a browser, after: pip install 'antiphon[http]'")
