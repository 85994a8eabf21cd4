"""Who is told that a mesh is up can join it: the gate listens by then."""

import asyncio

import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.runtime.gate.admission import Gate
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from tests.patience import PATIENCE_S


@pytest.mark.nats
async def test_a_gate_that_is_slow_to_begin_hears_whoever_joins_once_it_is_open(
    tmp_path, monkeypatch
):
    run = Gate.run

    async def run_late(gate):
        await asyncio.sleep(0.3)  # as on a busy machine
        await run(gate)

    monkeypatch.setattr(Gate, "run", run_late)
    home = StateDirectory(tmp_path / "owner")
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    terms = Terms(can=("read",), kinds=("*",), alias="late")
    async with (
        hosted_mesh.found_and_host(home.path, name="slow", listen=listen) as hosting,
        Mesh.open(home=home.path, role="client") as owner,
        hosting.gate(owner),
        asyncio.timeout(PATIENCE_S),
    ):
        ticket = hosted_mesh.invite(home, terms)
        access = await hosted_mesh.redeem(StateDirectory(tmp_path / "late"), ticket, alias="late")
    assert access.alias == "late"
