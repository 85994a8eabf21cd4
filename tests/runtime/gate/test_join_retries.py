"""A machine that joins while the network comes and goes."""

from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon import CircuitOpen, Mesh
from antiphon.assembly import membership
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.policy.circuit_breaker import CircuitBreaker, Phase
from antiphon.errors import Unavailable
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from chaos.network.fault_proxy import FaultProxy

pytestmark = pytest.mark.nats
TERMS = Terms(can=("schedule",), kinds=("test.*",), alias="laptop")


@asynccontextmanager
async def hosted_behind_proxy(directory):
    """A hosted mesh, and a ticket to it through a network that can be cut."""
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with (
        hosted_mesh.found_and_host(directory / "owner", name="far", listen=listen) as here,
        Mesh.open(home=directory / "owner") as owner,
        here.gate(owner),
    ):
        scheme, _, port = here.mesh.engine.rpartition(":")
        async with FaultProxy("127.0.0.1", int(port)) as proxy:
            ticket = hosted_mesh.invite(here.home, TERMS)
            yield replace(ticket, engine=f"{scheme}:{proxy.port}"), proxy


@pytest.fixture
def quick_pauses(monkeypatch):
    monkeypatch.setattr("antiphon.runtime.retries.backoff_ms", lambda *_, **__: 1)


@pytest.mark.req("S15")
async def test_a_network_that_is_cut_during_a_join_delays_it(tmp_path, monkeypatch, quick_pauses):
    """Cut before it connects, while it asks the gate, and when it connects again."""
    really_ask, seen = gate_requests.ask, []
    async with hosted_behind_proxy(tmp_path) as (ticket, proxy):
        really_knock = membership._knock

        async def knock(*given):
            if not seen:
                await proxy.set_mode("cut")
            seen.append("knock")
            try:
                return await really_knock(*given)
            finally:
                await proxy.set_mode("normal")

        async def ask(*given, **how):
            seen.append("ask")
            if seen.count("ask") == 1:
                await proxy.set_mode("cut")
                how["within_s"] = 1.0
            return await really_ask(*given, **how)

        monkeypatch.setattr(membership, "_knock", knock)
        monkeypatch.setattr(gate_requests, "ask", ask)
        home = StateDirectory(tmp_path / "laptop")
        breaker = CircuitBreaker()
        access = await hosted_mesh.redeem(home, ticket, alias="laptop", breaker=breaker)
        assert seen == ["knock", "knock", "ask", "knock", "knock", "ask"]
        assert (access.alias, home.access()) == ("laptop", access)
        assert breaker.phase is Phase.CLOSED


@pytest.mark.req("S15")
@pytest.mark.parametrize("has_breaker", [True, False])
async def test_a_join_gives_up_with_the_breakers_error_and_the_ticket_stays_valid(
    tmp_path, quick_pauses, has_breaker
):
    async with hosted_behind_proxy(tmp_path) as (ticket, proxy):
        await proxy.set_mode("cut")
        home = StateDirectory(tmp_path / "laptop")
        breaker = CircuitBreaker(failures=2) if has_breaker else None
        with pytest.raises(Unavailable) as told:
            await hosted_mesh.redeem(home, ticket, alias="laptop", breaker=breaker)
        assert isinstance(told.value, CircuitOpen) == has_breaker
        if has_breaker:
            assert "2 times in a row" in told.value.message
            assert "same ticket" in told.value.hint
        await proxy.set_mode("normal")
        assert (await hosted_mesh.redeem(home, ticket, alias="laptop")).alias == "laptop"
