"""`antiphon verify --rerun`: runs the bundle's command again and compares the outputs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.screen.command import Answer, fields
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.terminal import out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.proofs.bundles import Report
    from antiphon.sdk.proofs.rerun import Rerun


async def run_again(
    report: Report, inputs: Path | None, home: Path | None, *, network: bool
) -> Answer:
    """Run it again and say what matches; exit code 1 unless everything does."""
    from antiphon.sdk.proofs.rerun import rerun

    async with AsyncExitStack() as stack:
        mesh = await _reachable(stack, home)
        found = await rerun(report, inputs=inputs, mesh=mesh, network=network)
    sentences = in_words(found)

    def words() -> None:
        mark = ("✓ ", "succeeded") if found.is_same else ("✗ ", "failed")
        verdict = "gives the same result" if found.is_same else "does not give the same result"
        name = f"{report.job.kind} {short(report.job.id)}"
        out.pieces(mark, (f"the bundle is valid, and {name} {verdict} on this machine", ""))
        for sentence in sentences:
            out.hanging([("  - ", "")], [(sentence, "")])

    code = Exit.OK if found.is_same else Exit.FAILED
    return Answer({**facts(report, found), "sentences": sentences}, words, code)


async def _reachable(stack: AsyncExitStack, home: Path | None) -> Mesh | None:
    """The mesh of this directory, if there is one and it answers: it may have the inputs."""
    try:
        return await stack.enter_async_context(open_mesh(home))
    except AntiphonError:
        return None


def facts(report: Report, found: Rerun) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        "ok": found.is_same,
        **fields(report, "mesh", "owner"),
        "kind": report.job.kind,
        "job": report.job.id,
        "rerun": {
            **fields(found, "agreed", "differed", "missing", "further"),
            **fields(found, "exit_then", "exit_now", "same_program"),
            "isolation": found.isolation.level,
        },
    }


def in_words(found: Rerun) -> list[str]:
    """What matches and what does not, one sentence each."""
    sentences = []
    if found.agreed:
        sentences.append(f"same bytes as the worker's: {', '.join(found.agreed)}")
    if found.differed:
        sentences.append(f"different bytes from the worker's: {', '.join(found.differed)}")
    if found.missing:
        sentences.append(f"missing this time: {', '.join(found.missing)}")
    if found.further:
        sentences.append(f"only this time: {', '.join(found.further)}")
    if found.exit_then == found.exit_now:
        sentences.append(f"same exit code: {found.exit_now}")
    else:
        sentences.append(f"exit code {found.exit_now}; the worker's was {found.exit_then}")
    if found.same_program is not None:
        same = "the same file" if found.same_program else "not the same file"
        sentences.append(f"the program is {same} here as on the worker's machine")
    if not found.is_same:
        sentences.append(
            "a difference alone does not mean that the worker lied: a command may depend on the"
            " clock, on random numbers, or on a program of another version"
        )
    return sentences
