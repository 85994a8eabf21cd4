"""`antiphon doctor`: checks this machine, the engine and the mesh, and says how to fix problems."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.checks import histories, log, machine, nodes
from antiphon.interfaces.cli.checks.findings import Check, Finding, Level, Look, ok, wrong
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit, disk_full
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

MARKS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "succeeded"),
    "warning": ("!", "running"),
    "wrong": ("✗", "failed"),
}
CHECKS: Final[tuple[Check, ...]] = (
    *(log.engine, log.rules, log.clock, log.replica, log.writes),
    *(log.seals, log.archive, log.attention),
    *(nodes.nodes, nodes.routes, nodes.pauses, nodes.coordinator, nodes.tempo),
)
"""Every check of an open mesh, in the order in which they are told."""
CALLED: Final = frozenset({log.attention, nodes.nodes, nodes.routes, nodes.tempo})
"""Those that wait for the roll call: they come last."""


@command
async def doctor(
    home: Path | None,
    *,
    against: str = typer.Option(
        "",
        metavar="NODE|PATH",
        help="Only compare this machine's history with another full node's, an archive's, or a"
        " checkpoint's.",
        show_default=False,
    ),
) -> Answer:
    """Check this machine, the engine and the mesh.

    The exit code is 1 if anything is wrong. Warnings do not change it. With --against, it says
    whether somebody else has the same log, and if not, at which record the two part.
    """
    findings = await (examine(home) if not against else _compared(home, against))
    is_well = all(finding.level != "wrong" for finding in findings)

    def words() -> None:
        for finding in findings:
            mark, style = MARKS[finding.level]
            head = [(f"{mark} ", style), (f"{finding.check:11} ", "strong")]
            out.hanging(head, [(finding.sentence, "")])
            if finding.hint:
                out.hanging([("              try: ", "")], [(finding.hint, "")])

    facts = {"ok": is_well, "checks": [finding._asdict() for finding in findings]}
    return Answer(facts, words, Exit.OK if is_well else Exit.FAILED)


async def _compared(home: Path | None, against: str) -> list[Finding]:
    from antiphon.sdk.archive.witness import compare_with

    async with open_mesh(home) as mesh:
        return histories.findings(await compare_with(mesh, against))


async def examine(home: Path | None) -> list[Finding]:
    """Run every check, and tell them in order; stop where the next ones cannot run.

    What takes long (the sandbox, the engine's own report, the roll call) runs beside the others.
    """
    from antiphon.sdk.mesh import Mesh, StateDirectory

    try:
        found = StateDirectory.find(home)
        findings = list(machine.state(found))
    except AntiphonError as problem:
        return [_wrong("state", problem)]
    sandbox = asyncio.ensure_future(machine.sandbox(found))
    try:
        of_mesh = await _examine_mesh(Mesh.open(home=found.path))
    finally:
        await asyncio.wait([sandbox])
    return [*findings, sandbox.result(), *of_mesh]


async def _examine_mesh(mesh: Mesh) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async with mesh:
            where = mesh.home.mesh().engine
            findings.append(ok("reach", f"the engine answers at {where}"))
            findings += await check_mesh(mesh)
    except AntiphonError as problem:
        findings.append(_wrong("reach", problem))
    except OSError as problem:
        full = disk_full(problem)
        if full is None:
            raise
        findings.append(_wrong("disk", full))
    except BaseExceptionGroup as group:
        ours = group.subgroup(AntiphonError)
        if ours is None:
            raise
        findings.append(wrong("reach", str(ours.exceptions[0])))
    return findings


async def check_mesh(mesh: Mesh) -> list[Finding]:
    """Every check of an open mesh. What reads the replica takes turns, since one process keeps it.

    Nothing here waits for a beat: how the pulse is, nodes say when they are called.
    """
    look = Look(mesh, asyncio.ensure_future(mesh.presence.roll_call()))
    asking = asyncio.ensure_future(_checked(log.engine, look))
    try:
        found = {
            check: await _checked(check, look)
            for check in sorted(CHECKS, key=CALLED.__contains__)
            if check is not log.engine
        }
        found[log.engine] = await asking
        return [finding for check in CHECKS for finding in found[check]]
    finally:
        for task in (look.calling, asking):
            task.cancel()
        await asyncio.gather(look.calling, asking, return_exceptions=True)


async def _checked(check: Check, look: Look) -> list[Finding]:
    try:
        return [finding async for finding in check(look)]
    except AntiphonError as problem:
        return [_wrong(check.__name__, problem)]


def _wrong(check: str, problem: AntiphonError) -> Finding:
    return wrong(check, problem.message, problem.hint)
