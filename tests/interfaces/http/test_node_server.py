"""The node's HTTP interface, asked over loopback."""

import asyncio
import socket
import sys
from contextlib import AsyncExitStack
from functools import cache

import msgspec
import pytest
import structlog
from msgspec.structs import replace
from prometheus_client import parser as prometheus_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from antiphon.core.authority import grant_terms
from antiphon.core.authority.delegations import token_of
from antiphon.core.bar_tokens import bar_token
from antiphon.core.bar_tokens.bar_token import BarToken
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.protocol import PROTOCOL
from antiphon.core.tempo.meter import Meter
from antiphon.errors import Misconfigured, PortTaken
from antiphon.guard import Guard
from antiphon.interfaces.http import application, bounded_server
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.node_server import node_server
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.settings import HttpAddress
from tests.interfaces.http.client import OPERATOR, connected, request, served
from tests.patience import NEVER_S
from tests.runtime.meshes import CALM, call, eventually

pytestmark = pytest.mark.processes

CLOSED = msgspec.structs.replace(CALM, authority="chain")


# --- probes ---------------------------------------------------------------------------------------


@pytest.mark.req("B24")
async def test_probes_answer_one_word_to_everybody():
    async with served() as node:
        health, ready = await node.ask("/healthz"), await node.ask("/readyz")
        assert (health.status, health.body) == (200, b"ok\n")
        assert (ready.status, ready.body) == (200, b"ok\n")
        assert health.headers["cache-control"] == "no-store"
        assert "server" not in health.headers


@pytest.mark.req("B24")
async def test_a_node_that_has_not_caught_up_is_not_ready_and_says_why_only_with_a_token():
    async with served() as node:
        node.node.ready.clear()
        ready = await node.ask("/readyz")
        assert (ready.status, ready.body) == (503, b"not ready\n")
        assert (await node.ask("/healthz")).status == 200, "it is alive all the same"
        told = (await node.ask("/v1/status", OPERATOR)).json
        assert told["readiness"] == "not ready"
        assert told["reasons"] == ["the replica has not caught up with the log"]
        why = await node.ask("/readyz", OPERATOR)
        assert (why.status, why.body) == (
            503,
            b"not ready\nthe replica has not caught up with the log\n",
        )
        assert (await node.ask("/readyz", "wrong")).status == 401
        assert (await node.ask("/v1/status")).status == 401


@pytest.mark.req("B24")
async def test_a_degraded_tempo_is_told_and_the_node_stays_in_service():
    async with served() as node:
        node.tempo.mode, node.tempo.degraded = "local", "no leader"
        ready = await node.ask("/readyz")
        assert (ready.status, ready.body) == (200, b"degraded\n")
        assert (await node.ask("/v1/status", OPERATOR)).json["reasons"] == ["tempo: no leader"]
        text = (await node.ask("/metrics", OPERATOR)).body.decode()
        assert 'antiphon_degraded{reason="no leader"} 1.0' in text


# --- metrics --------------------------------------------------------------------------------------


@pytest.mark.req("B24")
async def test_metrics_have_what_the_node_and_its_tempo_count():
    async with served() as node:
        session = (await node.mesh.connection()).session
        await call(session, 1)
        await eventually(lambda: node.node.replica.sizes.by_state() == {"pending": 1})
        node.tempo.bpm, node.tempo.bar_len, node.tempo.drift_ms = 15.0, 8, -12.5
        node.tempo.mode, node.tempo.is_leader = "leader", True
        node.tempo.beats_sent, node.tempo.takeovers, node.tempo.tempo_changes = 42, 1, 3
        node.tempo.claims_received, node.tempo.claims_late = 7, 2
        node.tempo.bars_reported, node.tempo.aggregation_s = 2, 0.5
        node.tempo.engine_failures = 4
        node.tempo.kpis = {"tnt": 0.25, "bpd": None}
        node.tempo.alarms = frozenset({"overrun_rate"})
        answer = await node.ask("/metrics", OPERATOR)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.body.decode().splitlines()
    for line in (
        "antiphon_ready 1.0",
        "antiphon_engine_connected 1.0",
        'antiphon_jobs{kind="test.work",state="pending"} 1.0',
        'antiphon_records_verified_total{verdict="ok"} 1.0',
        "antiphon_tempo_bpm 15.0",
        "antiphon_tempo_bar_beats 8.0",
        "antiphon_tempo_drift_seconds -0.0125",
        'antiphon_tempo_mode{mode="leader"} 1.0',
        'antiphon_degraded{reason=""} 0.0',
        "antiphon_pulse_leader 1.0",
        "antiphon_pulse_beats_sent_total 42.0",
        "antiphon_pulse_takeovers_total 1.0",
        "antiphon_tempo_changes_total 3.0",
        "antiphon_tempo_engine_failures_total 4.0",
        'antiphon_status_claims_total{outcome="received"} 7.0',
        "antiphon_status_claims_late_total 2.0",
        "antiphon_bar_aggregation_seconds_count 2.0",
        "antiphon_bar_aggregation_seconds_sum 0.5",
        'antiphon_kpi{name="tnt"} 0.25',
        'antiphon_alarm{name="overrun_rate"} 1.0',
    ):
        assert line in lines
    assert not any('name="bpd"' in line for line in lines), "it has no value in this bar"


async def test_both_text_formats_can_be_read_back():
    async with served() as node:
        node.tempo.degraded = 'a "quoted" reason\nof two lines'
        plain = (await node.ask("/metrics", OPERATOR)).body.decode()
        async with connected(node.port) as line:
            accept = b"Accept: application/openmetrics-text; version=1.0.0\r\n\r\n"
            line.send(request("/metrics", OPERATOR).removesuffix(b"\r\n") + accept)
            answer = await line.answer()
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    read = [
        {one.name for one in families}
        for families in (
            prometheus_parser.text_string_to_metric_families(plain),
            openmetrics_parser.text_string_to_metric_families(answer.body.decode()),
        )
    ]
    assert read[0] == read[1]
    assert {"antiphon_ready", "antiphon_degraded", "antiphon_jobs"} <= read[0]


# --- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/metrics", "/v1/status"])
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        f"Basic {OPERATOR}",
        OPERATOR,
        f"Bearer {OPERATOR}x",
        f"Bearer {OPERATOR[:-1]}",
        "Bearer " + "A" * 8000,
        "Bearer \xff\xfe",
    ],
)
async def test_without_the_token_nothing_but_the_refusal_is_told(path, header):
    async with served() as node:
        sent = request(path)
        if header is not None:
            given = f"Authorization: {header}\r\n\r\n".encode("latin-1")
            sent = sent.removesuffix(b"\r\n") + given
        async with connected(node.port) as line:
            line.send(sent)
            answer = await line.answer()
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json) <= {"type", "title", "status", "detail", "reason", "hint"}
    assert answer.headers["content-type"] == "application/problem+json"
    assert OPERATOR not in answer.body.decode()


async def test_the_scheme_is_read_in_any_case_and_unknown_paths_tell_nothing():
    async with served() as node:
        async with connected(node.port) as line:
            line.send(request("/metrics", OPERATOR).replace(b"Bearer", b"bEARER"))
            assert (await line.answer()).status == 200
        unknown = {"type": "about:blank", "title": "Not Found", "status": 404}
        assert (await node.ask("/v2/anything")).json == unknown
        wrong = await node.ask("/metrics", method="DELETE")
        assert (wrong.status, "GET" in wrong.headers["allow"]) == (405, True)


class Holder:
    """A key that the owner delegates to, and its tokens."""

    def __init__(self, node, meter=Meter) -> None:
        self._node = node
        self._meter = meter
        self.key = SeedKeyring(node.mesh.entropy.token(32))
        self.chain: tuple[str, ...] = ()

    async def granted(self, can: str = "read", kinds: str = "*") -> "Holder":
        mesh = self._node.mesh
        self._session = (await mesh.connection(mesh.owner)).session
        (payload, *_) = PROTOCOL.rights.payloads(
            grant_terms.Terms(can=(can,), kinds=(kinds,)),
            issuer=mesh.owner.did,
            audience=self.key.did,
            owner=mesh.owner.did,
            mesh=mesh.mesh,
            nonce=mesh.entropy.token,
        )
        signed = mesh.owner.delegate(payload)
        await self._write(UcanDelegate, DelegateBody(token=token_of(signed.raw)))
        self.chain = (signed.cid,)
        return self

    async def revoked(self) -> None:
        await self._write(UcanRevoke, RevokeBody(cid=self.chain[0]))

    async def _write(self, op, body) -> None:
        written = await write_one(self._session, Intent(op, body))
        await self._node.node.reached(written.seq)

    def token(self, bars_ago: int = 0, **fields) -> str:
        meter = self._meter()
        downbeat = meter.downbeat_before(self._node.mesh.wall.now_ms()) - bars_ago * meter.bar_ms
        fields = {"project": "*", "role": "read", "downbeat_ms": downbeat, **fields}
        token = BarToken(delegation=self.chain, **fields)
        return bar_token.issue(token, (self.key.did, self.key.sign), mesh=self._node.mesh.mesh)


@cache
def long_bars() -> Meter:
    """A minute to a beat, and a test begins in the middle of a bar: none ends while it runs."""
    bars = Meter(bpm=1, bar_len=64)
    return replace(bars, anchor_ms=SystemClock().now_ms() - bars.bar_ms // 2)


@pytest.mark.req("B20")
async def test_a_bar_bound_token_opens_what_it_is_for_until_its_bars_are_over():
    async with served(CLOSED, long_bars) as node:
        holder = await Holder(node, long_bars).granted()
        assert (await node.ask("/metrics", holder.token())).status == 200
        late = await node.ask("/metrics", holder.token(bars_ago=2))
        assert (late.status, late.json["reason"]) == (401, "late")
        early = await node.ask("/metrics", holder.token(bars_ago=-1))
        assert (early.status, early.json["reason"]) == (401, "early")


@pytest.mark.req("B20")
async def test_when_the_tempo_changes_the_bars_of_a_token_are_counted_by_the_new_one():
    meters = [long_bars()]
    async with served(CLOSED, lambda: meters[-1]) as node:
        holder = await Holder(node, lambda: meters[0]).granted()
        token = holder.token()
        assert (await node.ask("/metrics", token)).status == 200
        now = node.mesh.wall.now_ms()
        # Three beats to a bar, and ten beats a second: since the change there were many bars.
        meters.append(Meter(bpm=600, bar_len=3, anchor_ms=now - 3_000))
        refused = await node.ask("/metrics", token)
        assert (refused.status, refused.json["reason"]) == (401, "late")


@pytest.mark.req("B20")
async def test_a_revoked_delegation_ends_a_token_at_once():
    async with served(CLOSED, long_bars) as node:
        holder = await Holder(node, long_bars).granted()
        token = holder.token()
        assert (await node.ask("/metrics", token)).status == 200
        await holder.revoked()
        refused = await node.ask("/metrics", token)
        assert (refused.status, refused.json["reason"]) == (401, "ended")


@pytest.mark.req("B20")
async def test_a_token_for_one_project_or_another_role_does_not_open_what_is_about_all():
    async with served(CLOSED, long_bars) as node:
        some = await Holder(node, long_bars).granted(kinds="build.*")
        answer = await node.ask("/metrics", some.token(project="build"))
        assert (answer.status, answer.json["reason"]) == (403, "project")
        answer = await node.ask("/metrics", some.token())
        assert (answer.status, answer.json["reason"]) == (403, "project")
        other = await Holder(node, long_bars).granted(can="cancel")
        answer = await node.ask("/metrics", other.token(role="cancel"))
        assert (answer.status, answer.json["reason"]) == (403, "role")
        answer = await node.ask("/metrics", other.token())
        assert (answer.status, answer.json["reason"]) == (401, "role")


async def test_on_an_open_mesh_a_key_that_somebody_made_opens_nothing():
    async with served(CALM, long_bars) as node:
        stranger = Holder(node, long_bars)
        answer = await node.ask("/metrics", stranger.token())
        assert (answer.status, answer.json["reason"]) == (401, "no_chain")


async def test_no_token_is_logged_whatever_happens(monkeypatch, capfd):
    async with served(CLOSED, long_bars) as node:
        holder = await Holder(node, long_bars).granted()
        token = holder.token()

        def fail(*_):
            raise RuntimeError(f"a bug that quotes {token} and {OPERATOR}")

        with structlog.testing.capture_logs() as events:
            await node.ask("/metrics", token)
            await node.ask("/metrics", f"{token}x")
            await node.ask(f"/metrics?token={OPERATOR}")
            monkeypatch.setattr(node.access, "admit", fail)
            failed = await node.ask("/metrics", OPERATOR)
    assert (failed.status, failed.json["detail"]) == (500, "internal error")
    (event,) = [one for one in events if one["event"] == "http_request_failed"]
    assert event["error"] == "RuntimeError"
    assert event["where"] == f"{__file__}:{fail.__code__.co_firstlineno + 1}", "the line of the bug"
    said = str(events) + "".join(capfd.readouterr())
    assert token not in said
    assert OPERATOR not in said


# --- the end --------------------------------------------------------------------------------------


async def test_the_port_is_closed_when_the_node_ends_and_open_connections_with_it():
    async with AsyncExitStack() as stack:
        async with served() as node:
            port = node.port
            idle = await stack.enter_async_context(connected(port))
            idle.send(request("/healthz"))
            await idle.answer()
            half = await stack.enter_async_context(connected(port))
            half.send(b"GET /healthz HT")
        await idle.ends()
        await half.ends()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_request_that_never_ends_does_not_keep_the_node(monkeypatch):
    monkeypatch.setattr(bounded_server, "STOP_S", 0.1)
    begun = asyncio.Event()

    async def never(*_):
        begun.set()
        await asyncio.sleep(NEVER_S)

    monkeypatch.setattr(application.NodeRoutes, "health", never)
    async with AsyncExitStack() as stack:
        async with served() as node:
            line = await stack.enter_async_context(connected(node.port))
            line.send(request("/healthz"))
            await begun.wait()
        await line.ends()


async def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = HttpAddress("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(PortTaken, match=str(address)):
            async with bounded_server.serving(Door((), Guard()), address):
                pass
    with pytest.raises(Misconfigured, match=r"192\.0\.2\.1"):
        async with bounded_server.serving(Door((), Guard()), HttpAddress("192.0.2.1", 0)):
            pass


def test_without_the_extra_the_error_says_what_to_type(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("antiphon.interfaces.http.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [name for name in sys.modules if name.partition(".")[0] == "starlette"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Misconfigured) as missing:
        node_server(None, None, None, None, None, HttpAddress("127.0.0.1", 0))
    assert missing.value.hint == "pip install 'antiphon[http]'"
