"""The state directory: which mesh this is, how to reach it, and the keys of this machine.

    .antiphon/
      mesh.json           the mesh, its name and its engine's address
      access.json         engine credentials, mode 0600
      keys/<name>.key     private keys, mode 0600; one process at a time uses one;
                          recovery-unshown.key is there only until somebody has seen it
      replica.db          the embedded replica
      cache/              fetched artifacts
      outbox/             what waits until the mesh can be reached
      server/             the server's files, if this machine runs it
      gate/               tickets and members, if this machine runs the gate

Found through `ANTIPHON_HOME`, or as the nearest `.antiphon` in the current directory or above it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from antiphon.core.authority.scope import Scope
from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Corrupt, Held, Misconfigured
from antiphon.files import PRIVATE_DIRECTORY, replace_file
from antiphon.runtime.identity import key_files

if TYPE_CHECKING:
    from antiphon.ports import Entropy

DIRECTORY: Final = ".antiphon"
MAX_KEYS_PER_ROLE: Final = 64

T = TypeVar("T")


class MeshFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every user of this machine may know about the mesh."""

    mesh: str
    name: str
    engine: str
    """`nats://host:port`, or several with commas between them."""
    replicas: int = 1
    """Copies of the log that the engine keeps. With more than one, fresh reads ask its leader."""
    ca: str = ""
    """The CA certificate of the server; empty where there is no TLS."""
    moved_ms: int = 0
    """When the owner announced the newest of its addresses; 0 if none was announced."""


class Access(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this machine logs in to the engine. Never printed."""

    user: str
    """A name, or the public half of an engine key."""
    password: str = ""
    system_user: str = ""
    system_password: str = ""
    jwt: str = ""
    user_seed: str = ""
    refresh_key: str = ""
    """The public half of the key that can only ask the gate for a new login."""
    refresh_jwt: str = ""
    refresh_seed: str = ""
    scope: Scope | None = None
    """What the login permits; None: everything."""
    kinds: tuple[str, ...] = ()
    """The kinds whose queues the login permits."""
    alias: str = ""
    """This machine's alias on the mesh."""

    def __repr__(self) -> str:
        return f"Access(user={self.user!r})"


class StateDirectory:
    """One state directory."""

    def __init__(self, path: Path) -> None:
        """The directory need not exist yet."""
        self.path = path

    @classmethod
    def find(cls, explicit: Path | None) -> StateDirectory:
        """The state directory to use, or `Misconfigured` with what to do."""
        if explicit is not None:
            return cls(explicit)
        here = Path.cwd()
        for place in (here, *here.parents):
            if (place / DIRECTORY / "mesh.json").is_file():
                return cls(place / DIRECTORY)
        raise Misconfigured(
            "no mesh found: no .antiphon directory in this directory or above it",
            hint="start one with 'antiphon dev', or set ANTIPHON_HOME to a state directory",
        )

    @property
    def replica(self) -> Path:
        """The replica's file."""
        return self.path / "replica.db"

    @property
    def cache(self) -> Path:
        """The cache of fetched artifacts."""
        return self.path / "cache"

    @property
    def server(self) -> Path:
        """The server's directory, if this machine runs it."""
        return self.path / "server"

    @property
    def hosts_mesh(self) -> bool:
        """Whether the mesh's server runs on this machine, with the owner's key."""
        return self.server.is_dir() and self.has_key("owner")

    @property
    def gate(self) -> Path:
        """The gate's directory, if this machine runs it."""
        return self.path / "gate"

    def lock_replica(self) -> key_files.FileLock:
        """Lock the replica for writing; `Held` if another process writes it now."""
        return self._lock(".lock", "another process writes the replica")

    def keep_replica(self) -> key_files.FileLock:
        """Be the process that keeps the replica up to date; `Held` if another one does."""
        return self._lock(".keeper", "another process keeps the replica")

    def _lock(self, end: str, in_use: str) -> key_files.FileLock:
        path = self.replica.with_suffix(end)  # beside it, wherever that is
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        return key_files.lock_file(path, in_use)

    def make(self) -> None:
        """Create the directory, readable by its owner only and ignored by git."""
        self.path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        (self.path / ".gitignore").write_text("# keys and state of one machine\n*\n")

    # --- mesh and access ----------------------------------------------------------------------

    def write(self, mesh: MeshFile, access: Access) -> None:
        """Write both files; replaces what was there.

        The mesh comes last: a directory that names a mesh can log in to it.
        """
        self.make()
        self.write_access(access)
        self.write_mesh(mesh)

    def write_mesh(self, mesh: MeshFile) -> None:
        """Replace what is known about the mesh."""
        text = msgspec.json.format(msgspec.json.encode(mesh))
        replace_file(self.path / "mesh.json", text, mode=0o644)

    def write_access(self, access: Access) -> None:
        """Replace the engine credentials."""
        replace_file(self.path / "access.json", msgspec.json.encode(access))

    def mesh(self) -> MeshFile:
        """Which mesh this directory belongs to."""
        return self._read("mesh.json", MeshFile)

    def access(self) -> Access:
        """The engine credentials."""
        return self._read("access.json", Access)

    def _read(self, name: str, type_: type[T]) -> T:
        path = self.path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=type_)
        except FileNotFoundError as problem:
            raise Misconfigured(
                f"{self.path} has no {name}",
                hint="start a mesh with 'antiphon dev', or set ANTIPHON_HOME",
            ) from problem
        except UNREADABLE as problem:
            raise Corrupt(f"{path} cannot be read: {problem}") from problem

    # --- keys ---------------------------------------------------------------------------------

    def key(self, name: str, entropy: Entropy) -> key_files.HeldKey:
        """The named key, created if it does not exist; `Held` if another process is using it."""
        path = self.path / "keys" / f"{name}.key"
        if not path.exists():
            # Another process may create it first: the lock below decides which one uses it.
            with suppress(Held):
                key_files.create(path, entropy.token(key_files.SEED_BYTES))
        return key_files.take(path)

    def has_key(self, name: str) -> bool:
        """Whether this machine has the named key."""
        return (self.path / "keys" / f"{name}.key").is_file()

    def key_names(self) -> dict[str, str]:
        """The names of this machine's keys, by their ids."""
        found = {}
        for path in sorted((self.path / "keys").glob("*.key")):
            with suppress(AntiphonError, OSError):
                found[key_files.load(path).did] = path.stem
        return found

    def signer(self, name: str) -> key_files.SeedKeyring:
        """The named key for signing delegations, even while another process uses it.

        A key belongs to one process at a time because of the timestamps that it signs, and a
        delegation has none.
        """
        return key_files.load(self.path / "keys" / f"{name}.key")

    def next_key(self, name: str, entropy: Entropy) -> key_files.SeedKeyring:
        """A new key that will replace the named one; the same key if asked again."""
        path = self.next_path(name)
        if not path.exists():
            key_files.create(path, entropy.token(key_files.SEED_BYTES))
        return key_files.load(path)

    def next_seed(self, name: str, entropy: Entropy) -> bytes:
        """The same for a key that is shown to a person and not kept here."""
        self.next_key(name, entropy)
        return key_files.load_seed(self.next_path(name))

    def next_path(self, name: str) -> Path:
        """The file of the key that will replace the named one."""
        return self.path / "keys" / f"{name}-next.key"

    def put_in_place(self, name: str) -> None:
        """Replace the named key by the next one; the old one is kept beside it."""
        folder = self.path / "keys"
        (folder / f"{name}.mark").unlink(missing_ok=True)
        if self.has_key(name):
            (folder / f"{name}.key").replace(folder / f"{name}-replaced.key")
        self.next_path(name).replace(folder / f"{name}.key")

    # A recovery key is shown to a person and not kept, but it must not be lost in between.

    @property
    def recovery_path(self) -> Path:
        """The file of a new mesh's recovery key, until somebody has seen it."""
        return self.path / "keys" / "recovery-unshown.key"

    def new_recovery(self, entropy: Entropy) -> bytes:
        """The seed of a new recovery key, which is in its file from now on."""
        key_files.create(self.recovery_path, entropy.token(key_files.SEED_BYTES))
        return self.unshown_recovery()

    def keep_recovery_to_show(self) -> None:
        """A development mesh keeps its recovery key beside the others: have it shown, then gone."""
        kept = self.path / "keys" / "recovery.key"
        if kept.exists():
            kept.replace(self.recovery_path)

    def unshown_recovery(self) -> bytes:
        """The seed of the recovery key that nobody has seen yet; empty if there is none."""
        path = self.recovery_path
        return key_files.load_seed(path) if path.exists() else b""

    def recovery_shown(self) -> None:
        """Somebody has the recovery key: it is stored nowhere from now on."""
        self.recovery_path.unlink(missing_ok=True)

    def free_key(self, role: str, entropy: Entropy) -> key_files.HeldKey:
        """The first key of a role that no other process uses; a new one if all are in use."""
        for number in range(1, MAX_KEYS_PER_ROLE + 1):
            try:
                return self.key(f"{role}-{number}", entropy)
            except Held:
                continue
        raise Held(
            f"all {MAX_KEYS_PER_ROLE} {role} keys are in use",
            hint="stop some of the antiphon processes on this machine",
        )
