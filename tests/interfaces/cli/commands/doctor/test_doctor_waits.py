"""How long `antiphon doctor` waits, and what it says of the beats without waiting for one."""

import asyncio

import pytest

from antiphon import Mesh
from antiphon.core.presence.cards import Card, PulseCard
from antiphon.interfaces.cli.checks.nodes import tempo_findings
from antiphon.interfaces.cli.commands.doctor.doctor import check_mesh

MOST_S = 1.0
"""With the sandbox and the connection, which run beside it or before it, less than two."""


@pytest.mark.virtual_time
async def test_no_check_waits_for_a_beat_or_for_another_check():
    async with Mesh.open(engine="memory") as mesh:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        findings = {finding.check: finding for finding in await check_mesh(mesh)}
        assert loop.time() - began_s <= MOST_S
    assert {"engine", "rules", "clock", "replica", "writes", "seals"} <= set(findings)
    assert {"workers", "nodes", "coordinator", "tempo"} <= set(findings)
    assert "15 bpm, 8 beats a bar" in findings["tempo"].sentence


def node(number: int, *, leads: bool, policy: str = "p", bpm: int = 12) -> Card:
    pulse = PulseCard(bpm=bpm, policy=policy, leads=leads)
    return Card(
        node=f"did:key:{number}", alias=f"node-{number}", role="node", version="1", at_ms=0,
        pulse=pulse,
    )  # fmt: skip


@pytest.mark.parametrize(
    "able, level, words",
    [
        ([], "warning", "15 bpm, 8 beats a bar; nobody sends beats"),
        ([node(1, leads=True)], "ok", "12 bpm, 8 beats a bar; the beats come from node-1"),
        ([node(1, leads=False)], "ok", "no node leads now, and node-1"),
        ([node(1, leads=True), node(2, leads=False, policy="old")], "warning", "node-2"),
    ],
)
def test_the_nodes_say_who_sends_the_beats(able, level, words):
    (finding,) = tempo_findings(able, policy_hash="p", bpm=15, bar_len=8)
    assert finding.level == level
    assert words in finding.sentence
