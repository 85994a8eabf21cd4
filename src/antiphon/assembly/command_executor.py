"""Runs a job's command: fetches its inputs, runs it in the sandbox, stores its outputs.

    manifest ─▶ may it? ─▶ inputs fetched, secrets found ─▶ sandbox ─▶ outputs kept ─▶ `Ran`

Every run has its own directory, which is removed afterwards in every case. What a command prints
is always an output, `stdout` and `stderr`. Either every file that its manifest names is kept, or
the job fails and says which one was not. What is refused before anything ran is a failure, too,
with its own name.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.assembly.program_files import runner_of
from antiphon.core.families.jobs.ops import Failure
from antiphon.core.policy import command_outcome
from antiphon.core.policy.attempt_end import Fault
from antiphon.core.proof.output import Output
from antiphon.core.record import codec
from antiphon.errors import AntiphonError, EngineDenied, Misconfigured, Rejected, Unavailable
from antiphon.runtime.executors.executor import Assignment, Executor, Ran
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.executors.run_folder import RunFolders, run_folders
from antiphon.runtime.executors.usage_gauge import UsageGauge
from antiphon.runtime.identity.secret_files import SecretFiles
from antiphon.sandbox import (
    Command,
    Ended,
    Limits,
    SandboxSupport,
    Stream,
    environment_of,
    probe,
    run,
)
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.manifest import Manifest
    from antiphon.runtime.artifacts.store import Artifacts

TRANSFER_S: Final = 900.0
"""For all inputs of a run to arrive, and for its outputs to be stored."""
TRIES: Final = 4
"""How often a transfer is begun while the engine does not answer for a moment."""
PAUSE_S: Final = 0.5
MAX_INPUT_BYTES: Final = 64 << 30
"""The size of all inputs of one run together."""
TAIL_BYTES: Final = 4096
INPUT_MODE: Final = 0o555
"""The job is another user where the worker is root; its parent directory stays closed to others."""
_NEVER_INLINE: Final = -1
_TYPES: Final = mimetypes.MimeTypes()
"""Without the machine's own files: the same names have the same types everywhere."""

T = TypeVar("T")

log = LazyLogger(__name__)


class CommandTerms(Struct, frozen=True, kw_only=True):
    """The terms on which a worker runs commands."""

    kinds: tuple[str, ...]
    network: bool = False
    """Whether commands may use this machine's network, where the mesh grants it, too."""
    unsafe: bool = False
    """Run them as plain processes, with all permissions of the worker's user."""
    secrets: Path | None = None
    """The directory of secrets that commands may ask for."""
    hidden: tuple[Path, ...] = ()
    """Directories of this machine that no command may see: the state, with its keys."""
    limits: Limits = Limits()


class _Refused(Exception):
    """The run ends here, with this failure."""

    def __init__(self, name: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        failure = Failure(name=name, message=message[: command_outcome.LAST_WORDS * 2])
        self.fault = Fault(failure=failure, is_final=is_final)


@asynccontextmanager
async def open_commands(
    control: Callable[[], Control], artifacts: Artifacts, terms: CommandTerms, *, place: Path | None
) -> AsyncIterator[Commands]:
    """Commands that a worker can run while the block runs; `Misconfigured` where it must not.

    `control` returns the mesh's present control state; `place` is the directory for runs, which
    belongs to this process alone.
    """
    secrets = SecretFiles(terms.secrets)
    secrets.check()
    async with run_folders(place) as folders:
        abilities = None
        if not terms.unsafe:
            terms = replace(terms, hidden=(*terms.hidden, folders.place))
            abilities = await asyncio.to_thread(probe, hidden=terms.hidden)
            require_sandbox(abilities)
        yield Commands(
            terms.kinds, CommandExecutor(control, artifacts, terms, abilities, folders, secrets)
        )


def require_sandbox(abilities: SandboxSupport) -> None:
    """`Misconfigured` where there is no sandbox, with both ways out."""
    try:
        abilities.required()
    except Misconfigured as problem:
        raise Misconfigured(
            problem.message,
            hint=f"{problem.hint}; or --unsafe-no-sandbox, which lets every command do everything"
            " that this user can do",
        ) from problem


class Commands:
    """`Executors` for any command, under some kinds."""

    def __init__(self, kinds: tuple[str, ...], executor: Executor) -> None:
        self._kinds = kinds
        self._executor = executor

    @property
    def kinds(self) -> list[str]:
        """The kinds under which commands are run."""
        return sorted(self._kinds)

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """The executor, for commands of these kinds."""
        is_command = manifest.handler is None and kind in self._kinds
        return self._executor if is_command else None


class CommandExecutor:
    """Runs commands, several at once if asked to."""

    def __init__(
        self,
        control: Callable[[], Control],
        artifacts: Artifacts,
        terms: CommandTerms,
        abilities: SandboxSupport | None,
        folders: RunFolders,
        secrets: SecretFiles,
    ) -> None:
        self._control = control
        self._artifacts = artifacts.at_once
        self._terms = terms
        self._abilities = abilities
        self._folders = folders
        self._secrets = secrets

    @property
    def grace_s(self) -> float:
        """The sandbox enforces the timeout; transfers before and after do not count."""
        return 2 * TRANSFER_S + 60

    @property
    def goes_on(self) -> bool:
        """No: a command is not known to be safe to run twice at once."""
        return False

    async def run(self, assignment: Assignment) -> Ran:
        """Run one command to its end."""
        async with self._folders.one(assignment.job_id[:8]) as folder:
            try:
                self._check_network(assignment)
                command = await self._prepare(assignment, folder)
                return await self._execute(assignment, command, folder)
            except _Refused as refused:
                return Ran(runner=python_runner(), fault=refused.fault)

    async def fall_back(self, _name: str, _assignment: Assignment) -> Ran | None:
        """A command has none."""
        return None

    # --- before -------------------------------------------------------------------------------

    def _check_network(self, assignment: Assignment) -> None:
        if assignment.manifest.network is not True:
            return
        why = command_outcome.network_refusal(
            self._control(), assignment.auth, node_allows=self._terms.network
        )
        if assignment.run.recorder is not None:
            why = "its model calls are audited, and those of a command cannot be captured"
        if why:
            raise _Refused("network", f"it asks for the network: {why}", is_final=True)

    async def _prepare(self, assignment: Assignment, folder: Path) -> Command:
        content = assignment.manifest
        names = () if content.secrets is UNSET else content.secrets
        try:
            secrets = tuple((name, self._secrets.find(name)) for name in names)
        except Misconfigured as problem:
            log.warning(
                "secret_refused", job=assignment.job_id, why=problem.message, hint=problem.hint
            )
            raise _Refused("secret", problem.message) from problem
        cwd = None if content.cwd in (UNSET, ".", "/job") else str(content.cwd)
        return Command(
            argv=(*content.command, *content.args),
            env={} if content.env is UNSET else dict(content.env),
            inputs=await self._fetch(assignment, folder / "inputs"),
            secrets=secrets,
            outputs=() if content.outputs is UNSET else tuple(content.outputs),
            cwd=cwd,
            hidden=self._terms.hidden,
            network=content.network is True,
            limits=replace(self._terms.limits, timeout_s=content.timeout or None),
        )

    async def _fetch(self, assignment: Assignment, folder: Path) -> tuple[tuple[str, Path], ...]:
        """Fetch every input, by digest, into files that the command can read and not change."""
        await asyncio.to_thread(folder.mkdir, mode=0o700)
        found: list[tuple[str, Path]] = []
        job = (assignment.kind, assignment.job_id)
        so_far = 0

        def tell(done: int, _: int) -> None:
            if so_far + done > MAX_INPUT_BYTES:
                raise _Refused("input", "its inputs are larger than a run may have in total")

        for number, one in enumerate(command_outcome.inputs_of(assignment.manifest)):
            path = folder / str(number)

            async def fetch(digest: str = one.hash, path: Path = path) -> None:
                text = assignment.texts.get(digest)
                if text is not None:
                    await asyncio.to_thread(path.write_text, text, encoding="utf-8")
                    return
                await self._artifacts.fetch(digest, path, job=job, on_progress=tell)

            try:
                async with asyncio.timeout(TRANSFER_S):
                    await _patiently(fetch)
            except TimeoutError:
                raise _Refused("input", f"the input {one.name!r} did not arrive") from None
            except AntiphonError as problem:
                raise _Refused("input", f"the input {one.name!r}: {problem.message}") from problem
            path.chmod(INPUT_MODE)
            size = path.stat().st_size
            so_far += size
            if one.size not in (None, size):
                raise _Refused("input", f"the input {one.name!r} has {size} bytes, not {one.size}")
            found.append((one.name, path))
        return tuple(found)

    # --- the run ------------------------------------------------------------------------------

    async def _execute(self, assignment: Assignment, command: Command, folder: Path) -> Ran:
        runner = await asyncio.to_thread(runner_of, command, sandboxed=not self._terms.unsafe)
        tail = bytearray()
        with (folder / "stdout").open("xb") as out, (folder / "stderr").open("xb") as err:
            files = {"stdout": out, "stderr": err}

            def hear(stream: Stream, data: bytes) -> None:
                files[stream].write(data)
                if stream == "stderr":
                    tail.extend(data)
                    del tail[:-TAIL_BYTES]
                assignment.run.output(stream, data)

            ended = await self._run_command(command, folder, hear, assignment.run.gauge)
        assignment.run.gauge.measured(ended.used)
        outputs, problem = await self._keep(assignment, command, ended, folder)
        failure = command_outcome.failure_of(ended.reason, ended.exit, bytes(tail))
        fault = None if problem is None else Fault(failure=problem)
        if failure is not None:
            fault = Fault(failure=failure, lineage=(failure.name.partition(":")[0],))
        return Ran(
            runner=runner,
            outputs=outputs,
            fault=fault,
            exit=ended.exit,
            isolation=ended.isolation,
            environment=None if self._terms.unsafe else _digest_of(environment_of(command)),
        )

    async def _run_command(
        self,
        command: Command,
        folder: Path,
        hear: Callable[[Stream, bytes], None],
        gauge: UsageGauge,
    ) -> Ended:
        try:
            return await run(
                command,
                work=folder,
                on_output=hear,
                abilities=self._abilities,
                unsafe=self._terms.unsafe,
                on_usage=gauge.measured,
            )
        except Rejected as problem:
            raise _Refused("command", problem.message, is_final=True) from problem
        except (Misconfigured, Unavailable) as problem:
            raise _Refused("sandbox", problem.message) from problem

    # --- after --------------------------------------------------------------------------------

    async def _keep(
        self, assignment: Assignment, command: Command, ended: Ended, folder: Path
    ) -> tuple[tuple[Output, ...], Failure | None]:
        """Everything that the job wrote, and what is wrong with it, if anything is."""
        problem = _objection(command, ended)
        files = [(name, folder / name) for name in command_outcome.STREAMS]
        files += [
            (one.name, one.path) for one in ended.outputs if one.name not in command_outcome.STREAMS
        ]
        inputs = command_outcome.inputs_of(assignment.manifest)
        room = command_outcome.room_for_text([name for name, _ in files], inputs)
        if room < 0:
            problem = problem or Failure(
                name="outputs",
                message=f"it left {len(files) - 2} files, more than a completion can name: keep"
                " an archive of them instead",
            )
            files = files[:2]
            room = command_outcome.room_for_text(command_outcome.STREAMS, inputs)
        kept = []
        try:
            async with asyncio.timeout(TRANSFER_S):
                for name, path in files:
                    output = await self._keep_one(path, name, room)
                    room -= (
                        command_outcome.text_bytes(output.text) if output.text is not None else 0
                    )
                    kept.append(output)
        except TimeoutError:
            raise _Refused("outputs", f"not stored within {TRANSFER_S:g} s") from None
        except AntiphonError as wrong:
            raise _Refused("outputs", f"could not be stored: {wrong.message}") from wrong
        return tuple(kept), problem

    async def _keep_one(self, path: Path, name: str, room: int) -> Output:
        kind = None if name in command_outcome.STREAMS else _TYPES.guess_type(name)[0]

        async def keep() -> Output:
            output = await self._artifacts.keep(path, name, media_type=kind)
            if output.text is None or command_outcome.text_bytes(output.text) <= room:
                return output
            return await self._artifacts.keep(
                path, name, media_type=kind, inline_bytes=_NEVER_INLINE
            )

        output = await _patiently(keep)
        is_text = output.text is not None and output.type is None
        return replace(output, type="text/plain") if is_text else output


def _objection(command: Command, ended: Ended) -> Failure | None:
    """Why the outputs do not satisfy the manifest; None if they do."""
    missing = command_outcome.missing_outputs(command.outputs, [one.name for one in ended.outputs])
    taken = [one.name for one in ended.outputs if one.name in command_outcome.STREAMS]
    message = ""
    if ended.left_out:
        first = ended.left_out[0]
        more = len(ended.left_out) - 1
        message = f"{first.name!r} was not kept: {first.why}" + (f", and {more} more" * bool(more))
    elif taken:
        message = f"an output file cannot be called {taken[0]!r}: that name is for what it prints"
    elif missing:
        message = f"it did not write the file {missing[0]!r}"
    return Failure(name="outputs", message=message) if message else None


async def _patiently(transfer: Callable[[], Awaitable[T]]) -> T:
    """A transfer, begun again if the engine did not answer for a moment."""
    for attempt in range(TRIES):
        try:
            return await transfer()
        except EngineDenied:
            raise
        except Unavailable:
            if attempt == TRIES - 1:
                raise
            await asyncio.sleep(PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")  # the last attempt returns or raises


def _digest_of(environment: object) -> str:
    return hashlib.sha256(codec.canonical_json(environment).encode()).hexdigest()


__all__ = ["CommandTerms", "Commands", "Limits", "open_commands", "probe", "require_sandbox"]
