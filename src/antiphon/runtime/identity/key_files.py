"""Private keys on disk: one file each, readable by its owner only, used by one process at a time.

A key file contains 32 bytes of seed in hex. Its lock file and its high-water mark are beside it.
The lock is what ensures "one process per key": a second process gets another key (spec §4.2). A
forked child inherits its parent's locks and drops them at once, which releases nothing: they are
the parent's alone, and what the child opens uses other keys.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final
from weakref import WeakSet

from nacl import bindings

from antiphon.core.archive.checkpoint import Checkpoint
from antiphon.core.clock.hlc import Stretch
from antiphon.core.record import signing
from antiphon.core.record.ids import did_of
from antiphon.core.ucan import Delegation, Payload, issue
from antiphon.errors import Corrupt, Held, Misconfigured
from antiphon.files import PRIVATE_DIRECTORY, PRIVATE_MODE

SEED_BYTES: Final = 32


class SeedKeyring:
    """A key that exists in this process only. Its seed appears in no repr, log or error."""

    __slots__ = ("_secret", "did")

    def __init__(self, seed: bytes) -> None:
        """`seed` is 32 unpredictable bytes."""
        public, self._secret = bindings.crypto_sign_seed_keypair(seed)
        self.did = did_of(public)

    def sign(self, payload_type: str, payload: bytes) -> bytes:
        """An Ed25519 signature over the DSSE pre-authentication encoding."""
        return signing.sign(self._secret, payload_type, payload)

    def delegate(self, payload: Payload) -> Delegation:
        """A delegation by this key."""
        if payload.iss != self.did:
            raise Misconfigured(f"this key cannot sign for {payload.iss}")
        return issue(payload, lambda message: bindings.crypto_sign(message, self._secret)[:64])

    def sign_checkpoint(self, checkpoint: Checkpoint) -> bytes:
        """An Ed25519 signature over a checkpoint's text, which begins with its log's name."""
        return bindings.crypto_sign(checkpoint.text.encode(), self._secret)[:64]

    def __repr__(self) -> str:
        return f"SeedKeyring({self.did})"


class FileMark:
    """A high-water mark in a file, replaced whole and synced before use."""

    def __init__(self, path: Path) -> None:
        """The file need not exist yet."""
        self._path = path

    def load(self) -> int:
        """The persisted wall time; 0 if there is none."""
        found = self._read()
        return found[0][0] if found else 0

    def load_spent(self) -> tuple[Stretch, ...]:
        """The stretches after the first line; a file of one line has none."""
        return tuple(Stretch(*pair) for pair in self._read()[1:])

    def _read(self) -> list[tuple[int, int]]:
        """One number, then pairs; the first number is returned as a pair, too."""
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return []
        try:
            (mark,) = lines[0].split()
            pairs = [tuple(map(int, line.split())) for line in lines[1:]]
            return [(int(mark), 0), *((first, last) for first, last in pairs)]
        except (ValueError, IndexError) as problem:
            raise Corrupt(
                f"the clock mark {self._path} is not a number",
                hint="write the current Unix time in milliseconds into it",
            ) from problem

    def store(self, wall_ms: int, spent: tuple[Stretch, ...] = ()) -> None:
        """Write, sync, rename: a crash leaves the old mark or the new one, never half."""
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as out:
            out.write(f"{wall_ms}\n")
            out.writelines(f"{first} {last}\n" for first, last in spent)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._path)


class FileLock:
    """A locked file; `lock_file` makes it."""

    def __init__(self, handle: int) -> None:
        """`handle` is open and locked."""
        self._handle = handle
        _locks.add(self)

    def release(self) -> None:
        """Let another process lock it; safe twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


_locks: WeakSet[FileLock] = WeakSet()


def _drop_locks_of_parent() -> None:
    """Closed here, a lock is still the parent's; kept here, it would outlive the parent's use."""
    for lock in list(_locks):
        lock.release()


os.register_at_fork(after_in_child=_drop_locks_of_parent)


class HeldKey:
    """A key file in use by this process until `release`."""

    def __init__(self, path: Path, keyring: SeedKeyring, lock: FileLock) -> None:
        """Made by `take`."""
        self.name = path.stem
        self.keyring = keyring
        self.mark = FileMark(path.with_suffix(".mark"))
        self._lock = lock

    def release(self) -> None:
        """Release the lock, so that another process can use the key; safe twice."""
        self._lock.release()


def lock_file(path: Path, in_use: str) -> FileLock:
    """Lock a file for this process; `Held`, with these words, if another process has."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(handle)
        raise Held(in_use) from problem
    return FileLock(handle)


def create(path: Path, seed: bytes) -> None:
    """Write a new key file; never over an existing one, and never partially."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    try:
        with os.fdopen(handle, "w") as out:
            out.write(seed.hex() + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.link(fresh, path)
        _sync_directory(path.parent)
    except FileExistsError as problem:
        raise Held(f"the key {path} exists already") from problem
    finally:
        fresh.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """Make the names in it durable: the log may name this key a moment later, and is synced."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def take(path: Path) -> HeldKey:
    """Lock and load a key; `Held` if another process is using it."""
    _check_mode(path)
    lock = lock_file(path.with_suffix(".lock"), f"another process is using the key {path.stem!r}")
    try:
        return HeldKey(path, load(path), lock)
    except BaseException:
        lock.release()
        raise


def _check_mode(path: Path) -> None:
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError as problem:
        raise Misconfigured(f"there is no key at {path}") from problem
    if mode & 0o077:
        raise Misconfigured(
            f"others may read the key {path} (mode {mode:o})", hint=f"chmod 600 {path}"
        )


def load(path: Path) -> SeedKeyring:
    """The key in a file, without locking it."""
    return SeedKeyring(load_seed(path))


def load_seed(path: Path) -> bytes:
    """The seed in a key file, for a key that is shown to a person."""
    _check_mode(path)
    try:
        seed = bytes.fromhex(path.read_text().strip())
    except ValueError as problem:
        raise Corrupt(f"{path} is not a key file") from problem
    if len(seed) != SEED_BYTES:
        raise Corrupt(f"{path} is not a key file")
    return seed
