"""A browser without a script that has signed in to the dashboard of a mesh in this process."""

from contextlib import asynccontextmanager

import httpx2

from antiphon.interfaces.http.pages.dashboard import make_dashboard
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.sdk.dashboard.source import Source

BASE = "http://127.0.0.1:8040"


def go_in(client, signed):
    """Everything that is asked from now on is below the browser's room."""
    assert signed.status_code == 303
    client.base_url = f"{client.base_url.join(signed.headers['location'])}".removesuffix("jobs")


@asynccontextmanager
async def signed_in(mesh, node=None):
    """One that has used a link; its forms come from our own pages."""
    sign_in = SignIn()
    app, end_streams = make_dashboard(Source(mesh, "seen", node), sign_in)
    carried = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(
        transport=carried, base_url=BASE, headers={"Origin": BASE}
    ) as client:
        signed = await client.get(f"/sign-in/{sign_in.link()}")
        go_in(client, signed)
        yield client
    end_streams()
