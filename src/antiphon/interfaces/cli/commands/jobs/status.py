"""`antiphon status`: whether the mesh can be reached, and what waits here if not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import out
from antiphon.interfaces.cli.shared.outbox_words import WORDS

STATES: Final = ("waiting", "asks", "held", "dropped")


@command
async def status(home: Path | None) -> Answer:
    """Show whether the mesh can be reached, and how much waits here.

    It exits with 4 if the mesh cannot be reached. 'antiphon outbox' lists what waits, and
    'antiphon doctor' checks the mesh.
    """
    async with open_mesh(home, offline=True) as mesh:
        is_connected, why, mesh_id = mesh.outbox.is_connected, mesh.outbox.unreachable, mesh.id
        items = mesh.outbox.items()
    counts = {state: sum(one.state == state for one in items) for state in STATES}
    problem = why.message if why is not None else ""

    def words() -> None:
        if is_connected:
            out.pieces(("✓ ", "succeeded"), (f"connected to mesh {mesh_id}", ""))
        else:
            out.pieces(("✗ ", "failed"), (f"mesh {mesh_id} cannot be reached: {problem}", ""))
            if why is not None and why.hint:
                out.pieces(("  try: ", ""), (why.hint, ""))
        listed = ", ".join(f"{count} {WORDS[state]}" for state, count in counts.items() if count)
        out.say(f"  outbox: {listed or 'empty'}")

    facts = {"mesh": mesh_id, "is_connected": is_connected, "why": problem, "outbox": counts}
    return Answer(facts, words, Exit.OK if is_connected else Exit.UNAVAILABLE)
