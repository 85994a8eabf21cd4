"""Checks of the engine, of the log, and of this machine's copy of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.checks.findings import Finding, Look, ok, warning, wrong
from antiphon.interfaces.cli.screen.node_names import NodeName
from antiphon.interfaces.cli.screen.options import short, short_node
from antiphon.interfaces.cli.screen.progress import size_words
from antiphon.interfaces.cli.screen.terminal import ago, counted, moment, span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from antiphon.sdk.mesh import Attention
    from antiphon.sdk.proofs.bundles import SealStatus
    from antiphon.sdk.write_volume import Written

MOST_ASIDE: Final = 8
FULL_ID: Final = 64
"""Digits of a job's id."""
CLOCK_LIMIT_MS: Final = 2_000
"""Between two clocks; a smaller difference may be network latency."""


async def engine(look: Look) -> AsyncIterator[Finding]:
    """What the engine reports about itself."""
    info = await look.mesh.presence.engine()
    copies = "one copy" if info.replicas == 1 else f"{info.replicas} copies"
    yield ok("engine", f"{info.name} {info.version}, {copies} of the log")
    if info.durability == "always":
        yield ok("durability", "every write is on disk before it is acknowledged")
    for said in info.warnings:
        yield warning("engine", said)


async def rules(look: Look) -> AsyncIterator[Finding]:
    """The rules that matter to nodes, and a protocol that is announced."""
    said, rise = look.mesh.authority.rules, look.mesh.authority.announced
    leases, drift = f"{said.lease_ms / 1000:g} s", f"{said.max_drift_ms / 1000:g} s"
    yield ok("rules", f"protocol {said.protocol}, leases of {leases}, clocks within {drift}")
    if rise is not None:
        words = (
            f"{rise.protocol} is announced and takes effect at {moment(rise.from_ms)}: upgrade"
            " every node that does not support it; if the owner did not announce it, the"
            " owner's key is stolen: run 'antiphon recover'"
        )
        yield warning("protocol", words)
    if said.authority == "open":
        words = "open: everyone who can connect may submit and claim jobs; for development only"
        yield warning("authority", words)


async def clock(look: Look) -> AsyncIterator[Finding]:
    """Records carry the engine's time: one from the future means that a clock is wrong."""
    from antiphon.sdk.lanes import newest_record

    newest = await newest_record(look.mesh)
    if newest is None:
        raise Misconfigured("the log is empty: it has no genesis record")
    ahead_ms = newest.commit_ms - time.time() * 1000
    if ahead_ms > CLOCK_LIMIT_MS:
        words = f"the engine's newest record is {span(ahead_ms / 1000)} in this machine's future"
        yield wrong("clock", words, "set this machine's clock, or the engine's")
    else:
        yield ok("clock", f"the newest record is {span(-min(ahead_ms, 0) / 1000)} old")


async def replica(look: Look) -> AsyncIterator[Finding]:
    """How far this machine's copy is verified."""
    from antiphon.sdk.lanes import newest_record

    newest = await newest_record(look.mesh)
    async with look.mesh.replica() as kept:
        at, jobs = kept.cursor.seq, counted(sum(kept.sizes.by_state().values()), "job")
    end = newest.seq if newest else 0
    yield ok("replica", f"verified up to record {at:,} of {end:,}; {jobs}")


async def writes(look: Look) -> AsyncIterator[Finding]:
    """How much was written lately, and by whom."""
    from antiphon.sdk.write_volume import written_lately

    for finding in writes_findings(await written_lately(look.mesh)):
        yield finding


def writes_findings(told: Written) -> list[Finding]:
    """Who writes more than usual: no server limit stops that, and it fills the disk."""
    if not told.much:
        total = f"{size_words(told.bytes)} in {counted(told.records, 'record')}"
        return [ok("writes", f"{total} in the last hour")]
    findings = []
    for one in told.much:
        refused = f", {size_words(one.refused_bytes)} of it rejected" if one.refused_bytes else ""
        if one.kind:
            where = "about the mesh itself" if one.is_control else f"on kinds of {one.kind!r}"
            words = f"{size_words(one.bytes)} {where} in the last hour{refused}; can write there: "
            words += one.by
        else:
            words = f"{size_words(one.bytes)} by {one.by} in the last hour{refused}"
        hint = "if that is too much: antiphon revoke NODE, which ends its connection at once"
        findings.append(warning("writes", words, hint))
    return findings


async def seals(look: Look) -> AsyncIterator[Finding]:
    """The newest seal."""
    from antiphon.sdk.proofs.bundles import seal_status

    yield seals_finding(await seal_status(look.mesh))


def seals_finding(told: SealStatus) -> Finding:
    """Whether the coordinator and this machine agree on what the log says."""
    if told.refused_seq > told.seq:
        return wrong(
            "seals",
            f"seal {told.refused_seq:,} does not match this machine's copy of the log: either"
            " this replica is damaged, or the coordinator signed something false",
            "move the replica's file away and check again: it is rebuilt from the log; if the"
            " seal still does not match, ask the mesh's owner to name another coordinator",
        )
    if not told.seq:
        return ok("seals", "no seal yet; the coordinator's node writes them")
    words = f"sealed up to record {told.upto:,}, {ago(told.commit_ms)}"
    if told.refused_seq:
        return warning("seals", f"{words}; before that, seal {told.refused_seq:,} did not match")
    return ok("seals", words)


async def archive(look: Look) -> AsyncIterator[Finding]:
    """Where the mesh is hosted: whether what has ended leaves the log."""
    from antiphon.sdk.archive.archives import has_archive
    from antiphon.sdk.proofs.bundles import seal_status

    if look.mesh.authority.rules.authority == "open" or not look.mesh.home.hosts_mesh:
        return
    if (await seal_status(look.mesh)).names_snapshot or await has_archive(look.mesh.home.path):
        yield ok("archive", "what has ended leaves the log for the archive")
    else:
        words = "there is none, so nothing leaves the log: it grows until the disk is full"
        hint = "ANTIPHON_ARCHIVE=/srv/archive antiphon up; as a service, set it in host.env"
        yield warning("archive", words, hint)


async def attention(look: Look) -> AsyncIterator[Finding]:
    """What this machine's node put aside."""
    async with look.mesh.replica() as kept:
        items = kept.attention.newest(limit=MOST_ASIDE + 1)
    for finding in attention_findings(items, await look.names()) if items else ():
        yield finding


def attention_findings(items: Sequence[Attention], name: NodeName = short_node) -> list[Finding]:
    """What this machine's node could not deal with: it goes on with the rest, and tries again."""
    findings = []
    for one in items[:MOST_ASIDE]:
        tried = f", tried {counted(one.tries, 'time')}" if one.tries > 1 else ""
        words = f"{_named(one, name)}: {one.reason}; {ago(one.since_ms)}{tried}"
        findings.append(warning(one.service, words))
    if len(items) > MOST_ASIDE:
        findings.append(warning("set aside", "there is more; these are the newest"))
    return findings


def _named(one: Attention, name: NodeName) -> str:
    parts = [short(part) if len(part) == FULL_ID else part for part in one.item.split()]
    what = " ".join(parts) or "as a whole"
    return f"{what} of {name(one.whose)}" if one.whose else what
