"""Whatever answers anybody passes the guard: every route, verb and socket that there is."""

import re
from functools import cache
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route as StarletteRoute

from antiphon.core.bus import subjects as bus
from antiphon.guard import Guard, Limits
from antiphon.interfaces.http import application, bounded_server
from antiphon.interfaces.http.askers import Anybody
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.endpoints import ENDPOINTS, Endpoint
from antiphon.interfaces.http.pages.dashboard import Dashboard
from antiphon.interfaces.http.pages.verify_page import make_application as verify_page
from antiphon.interfaces.http.route import REQUESTS, Route
from antiphon.sdk.dashboard.sign_in import SignIn
from antiphon.settings import HttpAddress
from tests.source_tree import read

SOURCE = Path(application.__file__).parents[2]

# --- HTTP -----------------------------------------------------------------------------------------

TOKENLESS = {
    "/healthz": "nobody's",
    "/readyz": "nobody's",
    "/v1/openapi.json": "nobody's",
    "/v1/a2a/deliver": "/message/send",
    "/v1/hooks/{hook}": "webhooks.toml",
    "/v1/offers": "the signer's scope",
    "/v1/lanes/{kind}/{job}": "the signer's scope",
    "/v1/records": "the signer's scope",
    "/v1/log": "the signer's scope",
}
"""The paths that a token does not open, and what does."""


class Anything:
    """Stands for what routes are made with; nothing of it is asked."""

    def __getattr__(self, _):
        return Anything()

    def __call__(self, *_, **__):
        return Anything()


@cache
def node_routes() -> tuple[Route, ...]:
    some = Anything()
    return tuple(application.NodeRoutes(some, some, some, some, some).routes())


@cache
def all_routes() -> tuple[Route, ...]:
    some = Anything()
    pages = Dashboard(some, SignIn()).routes()
    worker = application.ProbeRoutes(some, some).routes()
    return (*node_routes(), *worker, *pages, *verify_page("s", None, owner=None).routes)


def test_every_route_says_by_which_right_it_answers_and_how_much_it_may_take():
    routes = all_routes()
    assert len(routes) > 70
    for one in routes:
        limits = one.limits
        assert one.asker.under, one.path
        assert 0 < limits.of_party <= limits.in_all, one.path
        assert 0 < limits.seconds <= 3_600, one.path
        assert 0 < limits.work_s <= 60, one.path


def test_what_a_token_does_not_open_is_listed_with_what_does():
    found = {
        one.path: one.asker.under for one in node_routes() if not one.asker.under.startswith("/job")
    }
    closed = {path for path, under in found.items() if under.startswith(("/message", "/tempo"))}
    closed -= {"/v1/a2a/deliver"}
    closed |= {path for path, under in found.items() if under.startswith(("/lock", "/memory"))}
    assert {path for path in found if path not in closed} == set(TOKENLESS)
    for path, under in TOKENLESS.items():
        assert under in found[path], path


def test_rooms_that_several_routes_share_have_one_size():
    sizes: dict[str, set[tuple[int, int]]] = {}
    for one in all_routes():
        sizes.setdefault(one.limits.room, set()).add((one.limits.of_party, one.limits.in_all))
    assert {room: found for room, found in sizes.items() if len(found) > 1} == {}


async def answer(*_):
    return PlainTextResponse("hello")


def test_a_route_that_does_not_say_who_may_ask_or_how_much_cannot_be_made():
    whole = {"path": "/new", "answer": answer, "asker": Anybody("hello"), "limits": REQUESTS}
    Route(**whole)
    for missing in ("asker", "limits"):
        with pytest.raises(TypeError, match=missing):
            Route(**{name: one for name, one in whole.items() if name != missing})
    with pytest.raises(TypeError, match="limits"):
        Endpoint(method="GET", path="/v1/new", name="new", says="", under=(), answer=None)
    with pytest.raises(TypeError):
        Limits(room="new", of_party=1, in_all=1, request_bytes=1)


async def test_what_is_no_route_of_the_door_does_not_start():
    with pytest.raises(TypeError, match="who may ask"):
        Door([StarletteRoute("/new", answer)], Guard())
    with pytest.raises(TypeError, match="behind a Door"):
        async with bounded_server.serving(answer, HttpAddress("127.0.0.1", 0)):
            pass


def test_every_endpoint_is_answered_under_its_own_commands():
    by_path = {(one.path, one.methods[0]): one for one in node_routes()}
    for one in ENDPOINTS:
        route = by_path[one.path.replace("{name}", "{name:path}"), one.method]
        assert route.limits is one.limits
        if one.under:
            assert route.asker.under == " or ".join(one.under)


# --- sockets, and the engine ----------------------------------------------------------------------


def modules() -> dict[str, Path]:
    return {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}


def callers(*names: str) -> set[str]:
    """The modules of the package that call something of one of these names."""
    called = re.compile(rf"\b(?<!def )(?<!class )(?:{'|'.join(names)})\(")
    return {where for where, path in modules().items() if called.search(read(path))}


def test_only_what_passes_the_guard_listens_on_a_socket():
    listens = callers(
        "create_server", "start_server", "create_unix_server", "start_unix_server", "run_on"
    )
    assert listens == {"interfaces/http/bounded_server.py", "interfaces/git/push_service.py"}


def test_only_the_guards_subscriptions_hear_what_members_ask_of_the_gate():
    bus_and_gate = {"engines/nats/connection/bus.py", "engines/nats/gate/member_requests.py"}
    assert callers("MeteredSubscription") == bus_and_gate
    assert callers("handlers") == {"engines/nats/gate/member_requests.py"}


ANSWERED = {
    "runtime/gate/admission.py": (bus.JOIN, bus.LOGIN),
    "runtime/presence/roll_call.py": (bus.ROLL,),
    "runtime/node/entry_service.py": (bus.ENTRY,),
    "runtime/node/root_service.py": (bus.ROOTS,),
}
"""What answers requests on the bus. The gate counts the first; members' others come through it."""


def test_what_answers_on_the_bus_is_counted_or_comes_through_the_gate():
    replies = re.compile(r"publish\(\s*\w+\.reply")
    answers = {
        where
        for where, path in modules().items()
        if where.startswith("runtime/") and replies.search(read(path))
    }
    assert answers == set(ANSWERED)
    through_the_gate = {one.pattern for one in bus.BUS if one.via_gate}
    counted = {one.pattern for one in ANSWERED["runtime/gate/admission.py"]}
    answered = {one.pattern for found in ANSWERED.values() for one in found}
    assert answered == through_the_gate | counted
