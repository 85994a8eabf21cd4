"""`antiphon doctor`: checks this machine, the engine and the mesh, and says how to fix problems."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from antiphon.errors import AntiphonError, Misconfigured
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit, disk_full
from antiphon.interfaces.cli.screen.options import (
    short,
    short_node,
)
from antiphon.interfaces.cli.screen.progress import size_words
from antiphon.interfaces.cli.screen.terminal import ago, clock, counted, moment, out, span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from antiphon.sdk.mesh import Attention, Card, CoordinatorStatus, Job, Mesh, StateDirectory
    from antiphon.sdk.proofs.bundles import SealStatus
    from antiphon.sdk.write_volume import Written

DISK_BYTES: Final = 1 << 30
DISK_SHARE: Final = 20
"""A disk is nearly full below a GiB, or below 1/this of it if it is small."""
DISK_LEAST_BYTES: Final = 16 << 20
MOST_ASIDE: Final = 8
FULL_ID: Final = 64
"""Digits of a job's id."""
MAX_HELD: Final = 1_000
"""Held jobs that are compared with who is online."""
CLOCK_LIMIT_MS: Final = 2_000
"""Between two clocks; a smaller difference may be network latency."""
NodeName = Callable[[str], str]
Level = Literal["ok", "warning", "wrong"]
MARKS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "succeeded"),
    "warning": ("!", "running"),
    "wrong": ("✗", "failed"),
}


class Finding(NamedTuple):
    """The result of one check, as a sentence."""

    level: Level
    check: str
    sentence: str
    hint: str = ""


@command
async def doctor(home: Path | None) -> Answer:
    """Check this machine, the engine and the mesh.

    The exit code is 1 if anything is wrong. Warnings do not change it.
    """
    findings = await examine(home)
    is_well = all(finding.level != "wrong" for finding in findings)

    def words() -> None:
        for finding in findings:
            mark, style = MARKS[finding.level]
            out.hanging(
                [(f"{mark} ", style), (f"{finding.check:11} ", "strong")], [(finding.sentence, "")]
            )
            if finding.hint:
                out.hanging([("              try: ", "")], [(finding.hint, "")])

    facts = {"ok": is_well, "checks": [finding._asdict() for finding in findings]}
    return Answer(facts, words, Exit.OK if is_well else Exit.FAILED)


async def examine(home: Path | None) -> list[Finding]:
    """Run every check, and tell them in order; stop where the next ones cannot run.

    What takes long (the sandbox, the engine's own report, the roll call) runs beside the others.
    """
    from antiphon.sdk.mesh import Mesh, StateDirectory

    try:
        found = StateDirectory.find(home)
        described = found.mesh()
    except AntiphonError as problem:
        return [_wrong("state", problem)]
    findings = [
        Finding("ok", "state", f"{found.path} belongs to mesh {described.name!r}"),
        *_privacy(found),
        disk_finding(found.path, *_disk(found.path)),
    ]
    sandbox = asyncio.ensure_future(_sandbox(found))
    try:
        return findings + await _examine_mesh(Mesh.open(home=found.path), sandbox)
    finally:
        await asyncio.wait([sandbox])


async def _examine_mesh(mesh: Mesh, sandbox: asyncio.Future[Finding]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async with mesh:
            where = mesh.home.mesh().engine
            findings.append(Finding("ok", "reach", f"the engine answers at {where}"))
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
        findings.append(Finding("wrong", "reach", str(ours.exceptions[0])))
    return [await sandbox, *findings]


async def check_mesh(mesh: Mesh) -> list[Finding]:
    """Every check of an open mesh. What reads the replica takes turns, since one process keeps it.

    Nothing here waits for a beat: how the pulse is, nodes say when they are called.
    """
    calling = asyncio.ensure_future(mesh.nodes())
    asking = asyncio.ensure_future(_checked("engine", _engine(mesh)))
    try:
        rest = [
            await _checked(name, check(mesh))
            for name, check in {
                "rules": _rules,
                "clock": _clock,
                "replica": _replica,
                "writes": _writes,
                "seals": _seals,
            }.items()
        ]
        coordinator = await _checked("coordinator", _coordinator(mesh))
        called = [
            await _checked(name, check(mesh, calling))
            for name, check in {
                "attention": _attention,
                "nodes": _roll_call,
                "routes": _routes,
                "tempo": _tempo,
            }.items()
        ]
        found = [await asking, *rest, *called[:-1], coordinator, called[-1]]
        return [finding for some in found for finding in some]
    finally:
        for task in (calling, asking):
            task.cancel()
        await asyncio.gather(calling, asking, return_exceptions=True)


async def _checked(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await check
    except AntiphonError as problem:
        return [_wrong(name, problem)]


def _wrong(check: str, problem: AntiphonError) -> Finding:
    return Finding("wrong", check, problem.message, problem.hint)


def _disk(path: Path) -> tuple[int, int]:
    used = shutil.disk_usage(path)
    return used.total, used.free


def disk_finding(path: Path, total: int, free: int) -> Finding:
    """Whether there is room for keys, the replica and, on the host, the log."""
    if free >= min(DISK_BYTES, total // DISK_SHARE):
        return Finding("ok", "disk", f"{size_words(free)} free")
    level: Level = "wrong" if free < DISK_LEAST_BYTES else "warning"
    words = f"{size_words(free)} free on the disk of {path}: when it is full, nothing is written"
    return Finding(level, "disk", words, f"make room there; du -sh {path}/* shows what is large")


def _privacy(home: StateDirectory) -> list[Finding]:
    """Whether other users of this machine can read secrets."""
    findings: list[Finding] = []
    mode = home.path.stat().st_mode & 0o777
    if mode & 0o077:
        findings.append(
            Finding(
                "warning",
                "private",
                f"other users can list {home.path} (mode {mode:o})",
                f"chmod 700 {home.path}",
            )
        )
    secrets = [*home.path.glob("keys/*.key"), home.path / "access.json"]
    loose = [path for path in secrets if path.exists() and path.stat().st_mode & 0o077]
    findings += [
        Finding("wrong", "private", f"other users can read {path}", f"chmod 600 {path}")
        for path in loose
    ]
    if not findings:
        kept = sum(path.suffix == ".key" for path in secrets)
        findings.append(
            Finding("ok", "private", f"{counted(kept, 'key')}, readable by this user only")
        )
    return findings


async def _sandbox(home: StateDirectory) -> Finding:
    """Whether this machine can run commands in a sandbox."""
    from antiphon.sdk.command_job import sandbox_status

    able, sentence, remedy = await asyncio.to_thread(sandbox_status, home)
    if able:
        return Finding("ok", "sandbox", sentence)
    return Finding("warning", "sandbox", f"commands cannot run here: {sentence}", remedy)


async def _engine(mesh: Mesh) -> list[Finding]:
    info = await mesh.engine_info()
    copies = "one copy" if info.replicas == 1 else f"{info.replicas} copies"
    findings = [Finding("ok", "engine", f"{info.name} {info.version}, {copies} of the log")]
    if info.durability == "always":
        findings.append(
            Finding("ok", "durability", "every write is on disk before it is acknowledged")
        )
    findings += [Finding("warning", "engine", warning) for warning in info.warnings]
    return findings


async def _rules(mesh: Mesh) -> list[Finding]:
    rules = mesh.rules
    findings = [
        Finding(
            "ok",
            "rules",
            f"protocol {rules.protocol}, leases of {rules.lease_ms / 1000:g} s,"
            f" clocks within {rules.max_drift_ms / 1000:g} s",
        )
    ]
    rise = mesh.announced
    if rise is not None:
        findings.append(
            Finding(
                "warning",
                "protocol",
                f"{rise.protocol} is announced and takes effect at {moment(rise.from_ms)}: upgrade"
                " every node that does not support it; if the owner did not announce it, the"
                " owner's key is stolen: run 'antiphon recover'",
            )
        )
    if rules.authority == "open":
        findings.append(
            Finding(
                "warning",
                "authority",
                "open: everyone who can connect may submit and claim jobs; for development only",
            )
        )
    return findings


async def _clock(mesh: Mesh) -> list[Finding]:
    """Records carry the engine's time: one from the future means that a clock is wrong."""
    newest = await mesh.newest()
    if newest is None:
        raise Misconfigured("the log is empty: it has no genesis record")
    ahead_ms = newest.commit_ms - time.time() * 1000
    if ahead_ms > CLOCK_LIMIT_MS:
        return [
            Finding(
                "wrong",
                "clock",
                f"the engine's newest record is {span(ahead_ms / 1000)} in this machine's future",
                "set this machine's clock, or the engine's",
            )
        ]
    return [Finding("ok", "clock", f"the newest record is {span(-min(ahead_ms, 0) / 1000)} old")]


async def _replica(mesh: Mesh) -> list[Finding]:
    newest = await mesh.newest()
    end = newest.seq if newest else 0
    async with mesh.replica() as replica:
        at = replica.cursor.seq
        jobs = sum(replica.counts().values())
    return [
        Finding("ok", "replica", f"verified up to record {at:,} of {end:,}; {counted(jobs, 'job')}")
    ]


async def _attention(mesh: Mesh, calling: Awaitable[list[Card]]) -> list[Finding]:
    async with mesh.replica() as replica:
        items = replica.attention.newest(limit=MOST_ASIDE + 1)
    return attention_findings(items, await _names(mesh, calling)) if items else []


async def _names(mesh: Mesh, calling: Awaitable[list[Card]]) -> NodeName:
    """How nodes are called in sentences: by their aliases."""
    from antiphon.sdk.authority.holdings import who

    held = await who(mesh)
    if held.authority != "open":
        return held.name
    aliases = {card.node: card.alias for card in await calling}  # nothing is granted there
    return lambda did: aliases.get(did) or held.name(did)


def attention_findings(items: Sequence[Attention], name: NodeName = short_node) -> list[Finding]:
    """What this machine's node could not deal with: it goes on with the rest, and tries again."""
    findings = [
        Finding(
            "warning",
            one.service,
            f"{_named(one, name)}: {one.reason}; {ago(one.since_ms)}{_tried(one.tries)}",
        )
        for one in items[:MOST_ASIDE]
    ]
    if len(items) > MOST_ASIDE:
        findings.append(Finding("warning", "set aside", "there is more; these are the newest"))
    return findings


def _named(one: Attention, name: NodeName) -> str:
    parts = [short(part) if len(part) == FULL_ID else part for part in one.item.split()]
    what = " ".join(parts) or "as a whole"
    return f"{what} of {name(one.whose)}" if one.whose else what


def _tried(tries: int) -> str:
    return f", tried {counted(tries, 'time')}" if tries > 1 else ""


async def _writes(mesh: Mesh) -> list[Finding]:
    from antiphon.sdk.write_volume import written_lately

    return writes_findings(await written_lately(mesh))


def writes_findings(told: Written) -> list[Finding]:
    """Who writes more than usual: no server limit stops that, and it fills the disk."""
    total = f"{size_words(told.bytes)} in {counted(told.records, 'record')} in the last hour"
    if not told.much:
        return [Finding("ok", "writes", total)]
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
        findings.append(Finding("warning", "writes", words, hint))
    return findings


async def _seals(mesh: Mesh) -> list[Finding]:
    from antiphon.sdk.proofs.bundles import seal_status

    return [seals_finding(await seal_status(mesh))]


def seals_finding(told: SealStatus) -> Finding:
    """Whether the coordinator and this machine agree on what the log says."""
    if told.refused_seq > told.seq:
        return Finding(
            "wrong",
            "seals",
            f"seal {told.refused_seq:,} does not match this machine's copy of the log: either"
            " this replica is damaged, or the coordinator signed something false",
            "move the replica's file away and check again: it is rebuilt from the log; if the"
            " seal still does not match, ask the mesh's owner to name another coordinator",
        )
    if not told.seq:
        return Finding("ok", "seals", "no seal yet; the coordinator's node writes them")
    words = f"sealed up to record {told.upto:,}, {ago(told.commit_ms)}"
    if told.refused_seq:
        sentence = f"{words}; before that, seal {told.refused_seq:,} did not match"
        return Finding("warning", "seals", sentence)
    return Finding("ok", "seals", words)


async def _roll_call(mesh: Mesh, calling: Awaitable[list[Card]]) -> list[Finding]:
    from antiphon.sdk.mesh import State

    cards = await calling
    findings = clock_findings(cards, now_ms=time.time() * 1000)
    workers = [card for card in cards if card.role == "worker"]
    full = [card for card in cards if card.role != "worker"]
    if workers:
        kinds = sorted({kind for card in workers for kind in card.kinds})
        words = f"{counted(len(workers), 'worker')} for {', '.join(kinds)}"
        findings.append(Finding("ok", "workers", words))
    else:
        findings.append(
            Finding("warning", "workers", "no worker is online", "antiphon worker MODULE")
        )
    async with mesh.replica() as replica:
        held = replica.jobs(states=(State.CLAIMED, State.RUNNING), limit=MAX_HELD)
    findings += silent_findings(held, {card.node for card in cards}, await _names(mesh, calling))
    if full:
        findings.append(Finding("ok", "nodes", counted(len(full), "full node")))
    else:
        findings.append(
            Finding(
                "warning",
                "nodes",
                "no full node is online: nobody ends expired leases",
                "antiphon node",
            )
        )
    return findings


def silent_findings(
    held: Sequence[Job], online: set[str], name: NodeName = short_node
) -> list[Finding]:
    """Jobs whose worker does not answer: it hangs, it was killed, or the job ended its process."""
    silent = [job for job in held if job.claimer not in online]
    if not silent:
        return []
    who = ", ".join(sorted({name(job.claimer) for job in silent}))
    which = ", ".join(f"{job.kind} {short(job.id)}" for job in silent[:3])
    more = ", …" if len(silent) > 3 else ""  # noqa: PLR2004 - as many as fit a line
    last = max(job.deadline_ms for job in silent)
    words = f"{counted(len(silent), 'job')} held by {who}, which does not answer: {which}{more}"
    hint = (
        f"look at that worker and its log; its leases end by {clock(last)}, then others run the"
        " jobs. A job that ends every worker it meets: antiphon cancel"
    )
    return [Finding("warning", "held", words, hint)]


def clock_findings(cards: Sequence[Card], *, now_ms: float) -> list[Finding]:
    """Which clocks differ from this machine's; if most do, this machine's is the wrong one."""
    off = [(card, now_ms - card.at_ms) for card in cards]
    off = [(card, ahead_ms) for card, ahead_ms in off if abs(ahead_ms) > CLOCK_LIMIT_MS]
    if not off:
        return []
    if 2 * len(off) <= len(cards):
        names = ", ".join(f"{card.alias} ({_away(-ahead_ms)})" for card, ahead_ms in off)
        sentence = f"{counted(len(off), 'node')} with a different clock: {names}"
        return [Finding("warning", "clocks", sentence, "set the clocks of those machines")]
    middle = sorted(ahead_ms for _, ahead_ms in off)[len(off) // 2]
    sentence = (
        f"this machine's clock is {_away(middle)}, compared with {len(off)} of the {len(cards)}"
        " nodes that are online: what it signs may be rejected"
    )
    return [Finding("wrong", "clocks", sentence, "timedatectl set-ntp true")]


def _away(ahead_ms: float) -> str:
    return f"{span(abs(ahead_ms) / 1000)} {'ahead' if ahead_ms > 0 else 'behind'}"


async def _routes(mesh: Mesh, calling: Awaitable[list[Card]]) -> list[Finding]:
    from antiphon.sdk.authority.delegation import acts_through, stuck_routes, who

    held = await who(mesh)
    stuck = stuck_routes(held)
    findings = [Finding("wrong", "routes", one.words, one.hint) for one in stuck]
    online = {card.node for card in await calling if card.role == "worker"}
    for kind, node in held.routes.items():
        if any(one.kind == kind for one in stuck):
            continue
        words, name = f"{kind} is routed to {held.name(node)}", held.name(node)
        if online.isdisjoint({node, *acts_through(held, node)}):
            words += ", and no worker of it is online"
            findings.append(Finding("warning", "routes", words, f"antiphon worker, on {name}"))
        else:
            findings.append(Finding("ok", "routes", f"{words}, which is online"))
    return findings


async def _coordinator(mesh: Mesh) -> list[Finding]:
    return [coordinator_finding(await mesh.coordinator())]


def coordinator_finding(told: CoordinatorStatus) -> Finding:
    """Whether the one node that may offer waiting jobs is online; only a person names another."""
    node = short_node(told.coordinator)
    name = f"{told.alias} ({node})" if told.alias else f"node {node}"
    wrote = f"its last op was {ago(told.last_op_ms)}" if told.last_op_ms is not None else ""
    another = "name one that is online: antiphon coordinator NODE"
    level: Level = "ok"
    hint = ""
    if told.answers:
        words = f"{name} coordinates and is online; {wrote or 'it has written nothing recently'}"
    elif told.is_owner and not told.waiting:
        words = "the owner's key coordinates, and no process uses it; no job needs one now"
    elif told.is_owner:
        level, hint = "warning", another
        words = (
            f"{counted(told.waiting, 'job')} cannot start: the owner's key coordinates,"
            " and no process uses it"
        )
    elif told.is_quiet:
        level, hint = "warning", f"start it again, or {another}"
        words = f"{name} coordinates but does not answer, and "
        words += wrote or "none of the newest records is from it"
    else:
        words = f"{name} coordinates; it does not answer, but {wrote}"
    return Finding(level, "coordinator", words, hint)


async def _tempo(mesh: Mesh, calling: Awaitable[list[Card]]) -> list[Finding]:
    from antiphon.sdk.tempo.policy_file import policy_hash
    from antiphon.sdk.tempo.pulse_report import timekeepers

    policy = mesh.tempo_policy
    return tempo_findings(
        timekeepers(mesh, await calling),
        policy_hash=policy_hash(policy),
        bpm=policy.initial_bpm,
        bar_len=policy.bar_len_beats,
    )


def tempo_findings(
    able: Sequence[Card], *, policy_hash: str, bpm: int, bar_len: int
) -> list[Finding]:
    """Whether a node sends beats, and whether all that may follow the policy of the log."""
    behind = [card for card in able if card.pulse and card.pulse.policy != policy_hash]
    if behind:
        names = ", ".join(f"{card.alias} ({short_node(card.node)})" for card in behind)
        words = f"{names} counts by another tempo policy than the one on the log"
        return [Finding("warning", "tempo", words, "restart that node: it is behind the log")]
    bar = f"{bar_len} beats a bar"
    first = able[0] if able else None
    if first is None or first.pulse is None:
        words = f"{bpm} bpm, {bar}; nobody sends beats: each node counts by its own clock"
        hint = "run 'antiphon up' or 'antiphon node' on the owner's machine: one of them sends them"
        return [Finding("warning", "tempo", words, hint)]
    name = f"{first.alias} ({short_node(first.node)})"
    if first.pulse.leads:
        words = f"{first.pulse.bpm} bpm, {bar}; the beats come from {name}"
    else:
        words = f"{first.pulse.bpm} bpm, {bar}; no node leads now, and {name} can take over"
    return [Finding("ok", "tempo", words)]
