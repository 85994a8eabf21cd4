"""Runs a worker over a mesh's tasks, and over commands where it offers them."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.assembly import MeshConnection, working
from antiphon.assembly.artifact_store import artifacts_of
from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.policy.rate_limit import parse_rate
from antiphon.core.policy.selection import MAX_WEIGHT, check_labels, claim_fault, split_labels
from antiphon.core.record.subjects import check_kind
from antiphon.core.record.verdict import LACKS_AUTHORITY, Verdict
from antiphon.errors import Misconfigured
from antiphon.runtime.executors.executor import CombinedExecutors, Executors
from antiphon.runtime.executors.handler_exits import watching_tasks
from antiphon.runtime.executors.hooks import hooked
from antiphon.runtime.executors.printed_output import passing_on_prints
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.runtime.presence.worker_presence import Traits
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from antiphon.sdk.connection.connection_outbox import FOLDER
from antiphon.settings import load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from antiphon.assembly.command_executor import CommandTerms
    from antiphon.runtime.executors.handlers import Handlers
    from antiphon.runtime.identity.state_directory import StateDirectory

MEBIBYTE: Final = 1 << 20
SECRETS: Final = "secrets"
RUNS: Final = "runs"


def command_terms(
    kinds: Sequence[str],
    home: StateDirectory | None,
    *,
    network: bool = False,
    unsafe: bool = False,
) -> CommandTerms:
    """The terms on which this process runs commands, settings included."""
    from antiphon.assembly.command_executor import CommandTerms, Limits

    chosen = load()
    secrets = chosen.secrets or (home.path / SECRETS if home is not None else None)
    work_bytes = chosen.command_work_mb * MEBIBYTE
    return CommandTerms(
        kinds=tuple(dict.fromkeys(check_kind(kind) for kind in kinds)),
        network=network,
        unsafe=unsafe,
        secrets=Path(secrets) if secrets is not None else None,
        hidden=hidden_from_commands(home),
        limits=Limits(
            memory_bytes=chosen.command_memory_mb * MEBIBYTE,
            work_bytes=work_bytes,
            file_bytes=work_bytes,
        ),
    )


def hidden_from_commands(home: StateDirectory | None) -> tuple[Path, ...]:
    """What commands must not see: this machine's state, keys included, and secrets elsewhere."""
    places = (home.path if home is not None else None, load().secrets)
    return tuple(place for place in places if place is not None)


def worker_settings(
    *,
    slots: int | None,
    labels: Sequence[str] | None,
    weight: int | None,
    rates: Mapping[str, str] | None,
) -> WorkerSettings:
    """A worker's settings: from its program, or else from the environment."""
    chosen = load()
    return WorkerSettings(
        slots=slots or chosen.slots,
        drain_s=chosen.drain_s,
        battery_low=chosen.battery_low,
        rates={kind: parse_rate(rate) for kind, rate in (rates or {}).items()},
        traits=_traits(
            split_labels(chosen.labels) if labels is None else labels, weight or chosen.weight
        ),
    )


def _traits(labels: Sequence[str], weight: int) -> Traits:
    if not 1 <= weight <= MAX_WEIGHT:
        raise Misconfigured(f"a worker's weight is between 1 and {MAX_WEIGHT}")
    try:
        return Traits(labels=check_labels(labels), weight=weight)
    except ValueError as wrong:
        raise Misconfigured(str(wrong), hint="antiphon worker MODULE --label gpu=a100") from wrong


@asynccontextmanager
async def answering(
    connection: MeshConnection,
    tasks: Handlers,
    home: StateDirectory | None,
    settings: WorkerSettings,
    terms: CommandTerms | None = None,
) -> AsyncIterator[Worker]:
    """A worker while the block runs; drained at its end."""
    settings = replace(settings, rates=tasks.rates | settings.rates)
    async with AsyncExitStack() as stack:
        stack.enter_context(passing_on_prints())
        stack.enter_context(watching_tasks())
        outbox = home.path / FOLDER if home is not None else None
        waiting = OutboxStore(outbox).blobs if outbox is not None else None
        artifacts = artifacts_of(connection, home, waiting)
        functions = tasks.executors(artifacts, wall=connection.session.wall)
        stack.push_async_callback(functions.close)
        executors: Executors = functions
        if terms is not None:
            from antiphon.assembly.command_executor import open_commands

            # One process per key, so the key's name is a directory of its own.
            place = home.path / RUNS / connection.keyring.did[-16:] if home is not None else None
            commands = open_commands(
                lambda: connection.session.control, artifacts, terms, place=place
            )
            executors = CombinedExecutors(functions, await stack.enter_async_context(commands))
        executors = hooked(executors, tasks.hooks)
        work = working(connection, executors, settings, outbox=outbox)
        yield await stack.enter_async_context(work)


def claimable(worker: Worker) -> list[str]:
    """Of a worker's kinds, those that it may claim by what is on the log now."""
    session = worker.session
    did, chain_choice = session.author.did, ChainChoice(session.author.did)

    def fault(kind: str) -> Verdict | None:
        return claim_fault(
            session.control,
            chain_choice,
            did=did,
            kind=kind,
            job_id="0" * 64,
            now_ms=session.wall.now_ms(),
        )

    return [kind for kind in worker.executors.kinds if fault(kind) not in LACKS_AUTHORITY]


__all__ = [
    "Worker",
    "answering",
    "claimable",
    "command_terms",
    "hidden_from_commands",
    "worker_settings",
]
