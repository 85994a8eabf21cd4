"""The bubblewrap command line that makes a command's sandbox.

The sandbox has the machine's programs and libraries, read-only; almost nothing of /etc; a /dev
with five harmless devices; its own /proc, read-only; three sized file systems in memory; and what
the command declared. The worker's own folders are masked where they would be visible: the worker
can read everything below /usr, and so can the command. A root worker makes the sandbox as root
and then becomes a uid that owns nothing; any other worker makes it in a user namespace, as
itself, in which no further user namespace can be made.

The gate is a shell in the sandbox that reports ready, waits for `go`, and then runs the command
as its child; limits are set and everything is verified while it waits. Process 1 of the sandbox
is bubblewrap's own. It ends with the gate or with the worker, and the kernel then ends everything
else in the sandbox. (It has to be bubblewrap's: the order to end with the worker comes from a
parent that has dropped its privileges, and reaches only a process of the same uid.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.errors import Misconfigured, Rejected
from antiphon.sandbox.command import (
    MAX_SECRET_BYTES,
    SCRATCH,
    SECRETS,
    SHARED_MEMORY,
    WORK,
    Command,
)
from antiphon.sandbox.isolation import mounts, rlimits

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
READY: Final = b"ready\n"
GO: Final = b"go\n"
# The worker talks to the gate over the gate's standard input, which the command does not get. The
# gate's last message is the processor time of all processes that were waited for.
GATE: Final = (
    "{limits} || exit 125; "
    'echo ready >&0; read -r go && [ "$go" = go ] || exit 125; '
    'exec 3<&0 </dev/null; {env} -i -- "$@" 3<&-; s=$?; times >&3; exit $s'
)

_ROOT_FOLDERS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FROM_ETC: Final = ("alternatives", "ld.so.cache", "localtime")
_FROM_ETC_WITH_NETWORK: Final = (
    *("hosts", "nsswitch.conf", "resolv.conf", "services"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "ca-certificates"),
)
DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_LINKS: Final = (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2"))

Data = Callable[[bytes], int]
"""Makes an open file with this content, to be inherited; returns its number."""


class Tools(Struct, frozen=True, kw_only=True):
    """The programs that make the sandbox, and what they can do here."""

    bwrap: str
    version: str
    sh: str
    env: str
    setpriv: str | None
    """Only where the worker is root."""
    ends_userns: bool
    """Whether bubblewrap itself can rule out further user namespaces."""


def words(tools: Tools, command: Command, uid: int, data: Data, seccomp: bytes) -> list[str]:
    """The whole command line around the gate and the command, without the sandbox's options."""
    packed = b"".join(
        os.fsencode(word) + b"\0" for word in room(tools, command, uid, data, seccomp)
    )
    gate = GATE.format(limits=rlimits.script(command.limits), env=tools.env)
    return [
        *(tools.bwrap, "--args", str(data(packed)), "--"),
        *_as_job(tools, uid),
        *(tools.sh, "-c", gate, "sh"),
        *(f"{name}={value}" for name, value in environment_of(command).items()),
        *command.argv,
    ]


def room(tools: Tools, command: Command, uid: int, data: Data, seccomp: bytes) -> list[str]:
    """Every option, in the order in which the sandbox is built."""
    machine, visible = _machine(network=command.network), tuple(_visible(command))
    return [
        *_apart(tools, network=command.network),
        *machine,
        *_names(uid, uid if tools.setpriv else os.getgid(), data, network=command.network),
        *_writable(command),
        *visible,
        *_masks(command.hidden, machine + visible),
        *_declared(command, data, is_root=tools.setpriv is not None),
        *("--remount-ro", "/proc", "--remount-ro", "/"),
        *("--chdir", f"{WORK}/{command.cwd}" if command.cwd else WORK),
        *("--seccomp", str(data(seccomp))),
    ]


def environment_of(command: Command) -> Mapping[str, str]:
    """The command's whole environment: a few safe values, then its own."""
    return {
        "PATH": PATH,
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "LANG": "C.UTF-8",
        **({"ANTIPHON_SECRETS": SECRETS} if command.secrets else {}),
        **command.env,
    }


def _apart(tools: Tools, *, network: bool) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if not network:
        yield "--unshare-net"
    if tools.setpriv is None:
        yield "--unshare-user"
        if tools.ends_userns:
            yield "--disable-userns"
    else:
        # Kept for as long as it takes to become the job's uid.
        yield from ("--cap-drop", "ALL")
        for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            yield from ("--cap-add", name)
    yield from ("--hostname", "job", "--die-with-parent", "--new-session")
    yield from ("--clearenv", "--setenv", "PATH", PATH)


def _as_job(tools: Tools, uid: int) -> list[str]:
    if tools.setpriv is None:
        return []
    return [
        *(tools.setpriv, "--reuid", str(uid), "--regid", str(uid), "--clear-groups"),
        *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"),
        "--",
    ]


@cache
def _machine(*, network: bool) -> tuple[str, ...]:
    """The same for every sandbox: looked up once."""
    return tuple(_of_the_machine(network=network))


def _of_the_machine(*, network: bool) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _ROOT_FOLDERS:
        folder = Path("/", name)
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in (*_FROM_ETC, *(_FROM_ETC_WITH_NETWORK if network else ())):
        path = Path("/etc", name)
        if path.is_symlink() and str(path.resolve()).startswith("/usr/"):
            yield from ("--symlink", str(path.resolve()), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--proc", "/proc", "--dir", "/dev")
    for name in DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in _LINKS:
        yield from ("--symlink", f"/proc/self/fd{target}", f"/dev/{name}")


def _names(uid: int, gid: int, data: Data, *, network: bool) -> Iterator[str]:
    """Two users and one host: no others exist in the sandbox."""
    files = {
        "passwd": f"root:x:0:0::/:/bin/false\njob:x:{uid}:{gid}::{SCRATCH}:/bin/sh\n",
        "group": f"root:x:0:\njob:x:{gid}:\n",
    }
    if not network:
        files["hosts"] = "127.0.0.1 localhost job\n::1 localhost\n"
        files["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files\n"
    for name, text in files.items():
        yield from ("--perms", "0444", "--file", str(data(text.encode())), f"/etc/{name}")


def _writable(command: Command) -> Iterator[str]:
    limits = command.limits
    for place, size, mode in (
        (WORK, limits.work_bytes, "0777"),
        (SCRATCH, limits.scratch_bytes, "1777"),
        (SHARED_MEMORY, limits.scratch_bytes, "1777"),
    ):
        yield from ("--perms", mode, "--size", str(size), "--tmpfs", place)


def _visible(command: Command) -> Iterator[str]:
    for folder in command.visible:
        if not folder.is_absolute() or folder == Path("/") or not folder.is_dir():
            raise Misconfigured(
                f"{folder} cannot be shown to jobs: not the full path of a directory"
            )
        yield from _folders([folder], "/", "0755")
        yield from ("--ro-bind", str(folder), str(folder))


def _masks(hidden: tuple[Path, ...], in_sight: tuple[str, ...]) -> Iterator[str]:
    """An empty, closed mount over every hidden folder that would be visible."""
    masked: list[Path] = []
    for place in sorted(_to_mask(hidden, in_sight)):
        if masked and place.is_relative_to(masked[-1]):
            continue
        masked.append(place)
        yield from ("--perms", "0000", "--size", "4096", "--tmpfs", str(place))
        yield from ("--remount-ro", str(place))


def check_hidden(hidden: tuple[Path, ...]) -> None:
    """`Misconfigured` if one of these folders cannot be hidden from commands on this machine."""
    _to_mask(hidden, _machine(network=True))


@lru_cache(maxsize=16)
def _shown(in_sight: tuple[str, ...]) -> tuple[tuple[Path, Path], ...]:
    """What of the machine is shown, and where in the sandbox."""
    return tuple(
        (Path(in_sight[at + 1]).resolve(), Path(in_sight[at + 2]))
        for at, word in enumerate(in_sight)
        if word == "--ro-bind"
    )


def _to_mask(hidden: tuple[Path, ...], in_sight: tuple[str, ...]) -> set[Path]:
    """The places in the sandbox at which these folders, or a part of one, would be visible."""
    if not hidden:
        return set()
    shown, own = _shown(in_sight), mounts.own_table()
    found: set[Path] = set()
    for folder in (folder.resolve() for folder in hidden):
        where = mounts.position(folder, own)
        if where is None and any(folder.is_relative_to(source) for source, _ in shown):
            raise _not_to_hide(folder, "it does not exist yet", f"mkdir -m 700 {folder}")
        for one in mounts.sightings(folder, where, own) if where is not None else ():
            for source, place in shown:
                if source.is_relative_to(one.place):
                    raise _not_to_hide(folder, f"{source} is inside it")
                if one.place.is_relative_to(source) and one.place.exists():
                    if not one.place.is_dir():
                        raise _not_to_hide(folder, f"a file of it is mounted at {one.place}")
                    found.add(place / one.place.relative_to(source))
    return found


def _not_to_hide(folder: Path, why: str, remedy: str = "") -> Misconfigured:
    return Misconfigured(
        f"{folder} cannot be hidden from commands: {why}",
        hint=remedy or "move it: set ANTIPHON_HOME and ANTIPHON_SECRETS",
    )


def _declared(command: Command, data: Data, *, is_root: bool) -> Iterator[str]:
    inside = [Path(name) for name, _ in command.inputs]
    yield from _folders([*inside, Path(command.cwd or ".", "-")], f"{WORK}/", "0777")
    for name, path in command.inputs:
        _check_input(path, is_root=is_root)
        yield from ("--ro-bind", str(path), f"{WORK}/{name}")
    for name, path in command.secrets:
        yield from (
            "--perms",
            "0444",
            "--file",
            str(data(_secret(name, path))),
            f"{SECRETS}/{name}",
        )


def _folders(paths: list[Path], start: str, mode: str) -> Iterator[str]:
    """The directories above these, from the outermost in."""
    found = (parent for path in paths for parent in reversed(path.parents[:-1]))
    for folder in dict.fromkeys(found):
        yield from ("--perms", mode, "--dir", f"{start}{folder}".replace("//", "/"))


def _check_input(path: Path, *, is_root: bool) -> None:
    if not path.is_file() or not path.is_absolute():
        raise Rejected(f"the input {path} is not a file", reason="input")
    # A root worker's jobs have a uid that owns nothing.
    if is_root and not path.stat().st_mode & 0o004:
        raise Misconfigured(
            f"the input {path} can be read by its owner only, and the job runs as another user",
            hint=f"chmod o+r {path} (the directory around it may stay closed)",
        )


def _secret(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as problem:
        raise Misconfigured(f"the secret {name} cannot be read: {problem.strerror}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise Misconfigured(f"the secret {name} is larger than {MAX_SECRET_BYTES} bytes")
    return content
