"""A machine that joins while the network comes and goes."""

from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon import CircuitOpen, Mesh
from antiphon.assembly import membership
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.policy.circuit_breaker import CircuitBreaker, Phase
from antiphon.errors import Malformed, Rejected, Unavailable
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.gate.admission import Gate
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from chaos.network.fault_proxy import FaultProxy

pytestmark = pytest.mark.nats
TERMS = Terms(can=("schedule",), kinds=("test.*",), alias="laptop")
OTHER = Terms(can=("schedule",), kinds=("test.*",), alias="other")


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


async def test_a_machine_that_was_killed_while_it_joined_joins_with_the_same_ticket(
    tmp_path, monkeypatch
):
    """It had not heard the answer; the gate knows its keys, and gives it the same again."""
    async with hosted_behind_proxy(tmp_path) as (ticket, _):
        home = StateDirectory(tmp_path / "laptop")
        with monkeypatch.context() as killed:
            killed.setattr(StateDirectory, "write", lambda *_: {}["killed"])
            with pytest.raises(KeyError, match="killed"):
                await hosted_mesh.redeem(home, ticket, alias="laptop")
        assert not (home.path / "mesh.json").exists()
        with pytest.raises(Rejected, match="already used"):
            await hosted_mesh.redeem(StateDirectory(tmp_path / "thief"), ticket, alias="laptop")
        assert (await hosted_mesh.redeem(home, ticket, alias="laptop")).alias == "laptop"
        assert home.mesh().name == "far"


async def test_a_gate_s_passing_fault_is_waited_for(tmp_path, monkeypatch, quick_pauses):
    really, tried = Gate._delegate, []

    async def delegate(gate, *given):
        tried.append(given)
        if len(tried) <= 2:
            raise Unavailable("the stream has no leader")
        await really(gate, *given)

    monkeypatch.setattr(Gate, "_delegate", delegate)
    async with hosted_behind_proxy(tmp_path) as (ticket, _):
        home = StateDirectory(tmp_path / "laptop")
        assert (await hosted_mesh.redeem(home, ticket, alias="laptop")).alias == "laptop"
        monkeypatch.setattr(Gate, "_delegate", always(Unavailable("the stream has no leader")))
        home = StateDirectory(tmp_path / "other")
        second = hosted_mesh.invite(StateDirectory(tmp_path / "owner"), OTHER)
        with pytest.raises(Unavailable, match="could not decide: the stream has no leader") as told:
            await hosted_mesh.redeem(home, second, alias="other")
        assert "run the same command again" in told.value.hint


async def test_a_gate_that_shows_another_mesh_s_record_is_not_joined(tmp_path, monkeypatch):
    key = SeedKeyring(bytes(32))
    other = genesis.sign(key, SystemClock(), name="far", recovery=key.did, rules=Rules())
    monkeypatch.setattr(Gate, "_first_record", always(other.payload.decode()))
    async with hosted_behind_proxy(tmp_path) as (ticket, _):
        home = StateDirectory(tmp_path / "laptop")
        with pytest.raises(Malformed, match="not the first record of this mesh"):
            await hosted_mesh.redeem(home, ticket, alias="laptop")
        assert not (home.path / "mesh.json").exists()


def always(what):
    async def give(*_):
        if isinstance(what, Exception):
            raise what
        return what

    return give


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
