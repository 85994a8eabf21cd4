"""A sandboxed command: what to run, within which limits, and how it ended.

A command is checked here before anything is started: names that would leave their directory,
environment names that no shell accepts, arguments with a zero byte.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from antiphon.core.cost.usage import Resources
from antiphon.core.proof.statement import Isolation
from antiphon.errors import Rejected

WORK: Final = "/job"
"""The one directory that a command writes to, as it sees it."""
SCRATCH: Final = "/tmp"  # noqa: S108 - a private one, made by the sandbox
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - as above
SECRETS: Final = "/run/secrets"
MAX_SECRET_BYTES: Final = 1 << 20
MAX_GLOBS: Final = 256
MAX_GLOB: Final = 1024

MIB: Final = 1 << 20
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_NAME_BYTES: Final = 255

Stream = Literal["stdout", "stderr"]
StopReason = Literal["exited", "timeout", "killed", "output", "memory", "cpu", "disk"]
"""`exited`: by itself, by its exit code or a signal that the sandbox did not send. `timeout`,
`output`, `memory`, `cpu`: it went past that limit. `disk`: it failed with its directories full, or
made too many files. `killed`: from outside, together with its sandbox."""


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one run. The work directory is in memory, and counts as memory."""

    timeout_s: float | None = 3600.0
    """Wall-clock time; None = no limit."""
    grace_s: float = 5.0
    """Between the request to end (TERM) and the end (KILL), when the time is up."""
    memory_bytes: int = 1024 * MIB
    """Of each process; and of all processes and the three directories below together."""
    cpu_s: int | None = None
    """Processor time of all processes together."""
    processes: int = 256
    """Threads count too."""
    open_files: int = 1024
    """In each process."""
    file_bytes: int = 1024 * MIB
    """The largest single file."""
    work_bytes: int = 1024 * MIB
    scratch_bytes: int = 256 * MIB
    """Of /tmp, and of /dev/shm."""
    files: int = 100_000
    """Files and directories that may exist at once in each of the three."""
    output_bytes: int = 16 * MIB
    """Of stdout, and of stderr."""

    @property
    def all_bytes(self) -> int:
        """Memory of the processes and the directories together."""
        return self.memory_bytes + self.work_bytes + 2 * self.scratch_bytes


class Command(Struct, frozen=True, kw_only=True):
    """One command. Paths are the worker's; what the command sees of them is the name beside."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    inputs: tuple[tuple[str, Path], ...] = ()
    """Files that it sees, read-only, under these names in the work directory."""
    secrets: tuple[tuple[str, Path], ...] = ()
    """Small files that it sees, read-only, under /run/secrets; never in the environment."""
    outputs: tuple[str, ...] = ()
    """Globs over the work directory: `*` stays in one directory, `**` does not."""
    cwd: str | None = None
    """Where it starts, inside the work directory."""
    visible: tuple[Path, ...] = ()
    """Directories of this machine that it may read besides /usr, at the same paths: toolchains."""
    hidden: tuple[Path, ...] = ()
    """Directories of this machine that it must not see, wherever they are: the worker's own."""
    network: bool = False
    """The machine's own network, its loopback included, or none at all."""
    limits: Limits = Limits()


class Output(Struct, frozen=True, kw_only=True):
    """A file that a command left behind; `path` is the worker's own copy."""

    name: str
    path: Path


class LeftOut(Struct, frozen=True, kw_only=True):
    """Something that matched an output glob but was not collected."""

    name: str
    why: str


class Ended(Struct, frozen=True, kw_only=True):
    """How a run ended, what it used and which isolation was in force."""

    exit: int | None
    """Negative: the signal. Taken from a shell, so a program which returns 128 + n itself looks
    the same. None: something outside killed it together with its sandbox."""
    reason: StopReason
    used: Resources
    """Processor time without a cgroup: except the last moments of those that no parent waited
    for. `max_rss_kb`: of the largest process, absent if it was too brief to be measured."""
    isolation: Isolation
    outputs: tuple[Output, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def check(command: Command) -> None:
    """`Rejected` unless the command can be run as it is."""
    if not command.argv or not command.argv[0]:
        raise _refusal("there is no command to run")
    if "=" in command.argv[0]:
        raise _refusal(f"a program's name cannot contain '=': {command.argv[0]!r}")
    for word in (*command.argv, *command.env.values()):
        if "\0" in word or not _is_text(word):
            raise _refusal("an argument or an env value is not plain text, or has a zero byte")
    for name in command.env:
        if not _ENV_NAME.fullmatch(name):
            raise _refusal(f"{name!r} is not a valid name for an environment variable")
    for name in Limits.__struct_fields__:
        value = getattr(command.limits, name)
        if value is not None and not value > 0:
            raise _refusal(f"the limit {name} must be greater than zero")
    _check_files(command)
    _check_globs(command.outputs)


def _check_files(command: Command) -> None:
    for name, _ in command.secrets:
        if not _SECRET_NAME.fullmatch(name):
            raise _refusal(f"{name!r} is not a secret name: use letters, digits, '_', '.' and '-'")
    for name in (*(name for name, _ in command.inputs), *([command.cwd] if command.cwd else [])):
        check_name(name)
    _check_apart([tuple(name.split("/")) for name, _ in command.inputs])
    _check_apart([(name,) for name, _ in command.secrets])


def _check_globs(globs: tuple[str, ...]) -> None:
    if len(globs) > MAX_GLOBS:
        raise _refusal(f"more than {MAX_GLOBS} output globs")
    for pattern in globs:
        if len(pattern) > MAX_GLOB:
            raise _refusal(f"an output glob is longer than {MAX_GLOB} characters")
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise _refusal(f"the output {pattern!r} leaves the work directory")


def check_name(name: str) -> None:
    """`Rejected` unless it names something inside a directory, in normal form."""
    parts = name.split("/")
    if (
        any(
            part in ("", ".", "..") or len(part.encode(errors="replace")) > _NAME_BYTES
            for part in parts
        )
        or "\0" in name
        or not _is_text(name)
    ):
        raise _refusal(f"{name!r} is not a name inside the work directory")


def _check_apart(names: list[tuple[str, ...]]) -> None:
    """No two the same, and none inside another."""
    for one, next_one in pairwise(sorted(names)):
        if next_one[: len(one)] == one:
            raise _refusal(f"two files would be at {'/'.join(next_one)!r}")


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(message: str) -> Rejected:
    return Rejected(message, reason="command")
