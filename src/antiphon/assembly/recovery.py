"""Recovery: a new owner key, by the recovery key that was shown once and kept elsewhere.

The new recovery key must not be lost between its creation and its display: from the commit on, the
old one is no longer valid. So both new keys are in the state directory before anything is written,
the new recovery key is shown before it is in force, and its file is deleted when it is. A recovery
that stopped anywhere in between continues when it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from antiphon.assembly.logins import Purpose, connect, fresh_access
from antiphon.assembly.mesh_connection import OWNER, place
from antiphon.core.authority.grant_tree import trace
from antiphon.core.families.mesh.ops import MeshRecover, RecoverBody
from antiphon.errors import OutcomeUnknown, Rejected
from antiphon.runtime.identity import key_files
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.log.author import NoMark
from antiphon.runtime.log.writer import Intent, Policy, Written, write_one

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.history.control_history import ControlHistory
    from antiphon.runtime.identity.state_directory import StateDirectory
    from antiphon.runtime.log.session import Session

RECOVERY: Final = "recovery"

Show = Callable[[bytes], None]
"""Receives the seed of the new recovery key; returns when a person, or a program, has it."""


class Setting(Struct, frozen=True, kw_only=True):
    """A value that an owner's key set, and that is in force."""

    name: str
    """The kind of a route, or the name of a rule."""
    before: Any
    now: Any
    seq: int
    """Where it was set; 0 if it was so from the beginning."""
    by: str
    """The owner's key that set it."""
    commit_ms: int = 0


class Review(Struct, frozen=True, kw_only=True):
    """What the earlier keys set: a thief of one may have set any of it."""

    coordinator: Setting
    """`before`: the coordinator until the recovery, `now`: the one since."""
    routes: tuple[Setting, ...]
    rules: tuple[Setting, ...]
    """Those that differ from the mesh's first values."""
    names: dict[str, str]
    """The aliases of nodes until the recovery."""


class Recovered(Struct, frozen=True, kw_only=True):
    """What is in force now."""

    owner: str
    replaced: str
    recovery_seed: bytes
    """The seed of the new recovery key, which was shown before it was in force."""
    grants_ended: int
    review: Review

    def __repr__(self) -> str:
        return f"Recovered(owner={self.owner})"


async def recover(home: StateDirectory, seed: bytes, *, show: Show) -> Recovered:
    """Replace the owner's key and the recovery key, from here on the log.

    What the old owner had granted ends there: a thief of its key may have granted anything.
    """
    keyring = key_files.SeedKeyring(seed)
    described = home.mesh()
    access = await fresh_access(home, ())
    engine = await connect(described, access, Purpose(name=RECOVERY), home=home)
    try:
        session = place(engine, described.mesh, keyring, RECOVERY, NoMark()).session
        control = await session.sync_control()
        if not _is_in_force(home, control):
            if control.recovery != keyring.did:
                raise Rejected(
                    f"this is not the recovery key of the mesh {described.name!r}",
                    reason="not_owner",
                    hint="each recovery makes a new one: use the newest one that you wrote down",
                )
            await _put_in_force(home, session, show)
        else:
            show(key_files.load_seed(home.next_path(RECOVERY)))
        return await _finish(home, session)
    finally:
        await engine.close()


def _is_in_force(home: StateDirectory, control: Control) -> bool:
    """Whether the new keys in this directory are in force already: the answer was lost."""
    path = home.next_path(RECOVERY)
    return path.exists() and key_files.load(path).did == control.recovery


async def _put_in_force(home: StateDirectory, session: Session, show: Show) -> None:
    entropy = SystemEntropy()
    owner, seed = home.next_key(OWNER, entropy), home.next_seed(RECOVERY, entropy)
    show(seed)
    body = RecoverBody(owner=owner.did, recovery=key_files.SeedKeyring(seed).did)

    def again(now: Written) -> Intent | None:
        """An earlier attempt of ours may have arrived late."""
        return None if _is_in_force(home, session.control) else now.intent

    try:
        await write_one(session, Intent(MeshRecover, body), Policy(again=again))
    except OutcomeUnknown as unknown:
        raise OutcomeUnknown(
            f"it is not known whether the new keys are in force: {unknown.message}",
            hint="run 'antiphon recover' again with the same recovery key: it continues from here."
            f" Until then the new one is kept in {home.next_path(RECOVERY)}",
        ) from unknown


async def _finish(home: StateDirectory, session: Session) -> Recovered:
    """Start to use the new owner's key, and delete the recovery key, which was shown."""
    control, path = session.control, home.next_path(RECOVERY)
    seed = key_files.load_seed(path)
    if home.next_path(OWNER).exists():
        home.put_in_place(OWNER)
    path.unlink()
    home.recovery_shown()  # the one before it: who recovers has it, and it is no longer valid
    replaced = _before_recovery(session.history).owner
    ended = sum(link.issuer == replaced for link in control.grants.everything())
    return Recovered(
        owner=control.owner,
        replaced=replaced,
        recovery_seed=seed,
        grants_ended=ended,
        review=await review(session),
    )


# --- what earlier keys set ------------------------------------------------------------------------


def _states(history: ControlHistory) -> Iterator[Control]:
    """Every control state, the newest first."""
    state = history.current
    while state is not None:
        yield state
        state = history.at(state.since, 0)  # as it was written, whatever came into force later


def _before_recovery(history: ControlHistory) -> Control:
    """The state that the newest change of owner ended; the first one if there was none."""
    newest = history.current
    last = newest
    for last in _states(history):
        if newest is not None and last.owner != newest.owner:
            break
    if last is None:
        raise Rejected("this mesh has no genesis", reason="genesis")
    return last


async def review(session: Session) -> Review:
    """What is in force that a key before the newest owner's set, and where on the log."""
    before, now = _before_recovery(session.history), session.control
    states = list(_states(session.history))[::-1]
    first = asdict(states[0].rules)
    office = _last_set(states, "", lambda state, _: state.coordinator, upto=before)
    routes = [
        _last_set(states, kind, lambda state, kind: state.routes.get(kind))
        for kind in sorted(now.routes)
    ]
    rules = [
        _last_set(states, name, lambda state, name: getattr(state.rules, name))
        for name, value in asdict(now.rules).items()
        if value != first[name]
    ]
    rules = [replace(one, before=first[one.name]) for one in rules]
    office = replace(office, before=before.coordinator, now=now.coordinator)
    return Review(
        coordinator=await _dated(session, office),
        routes=tuple([await _dated(session, one) for one in routes]),
        rules=tuple([await _dated(session, one) for one in rules]),
        names=trace(before, session.wall.now_ms() // 1000).names,
    )


def _last_set(
    states: list[Control],
    name: str,
    value: Callable[[Control, str], Any],
    *,
    upto: Control | None = None,
) -> Setting:
    """Where a value became what it is in the last of these states."""
    first = states[0]
    found = Setting(name=name, before=None, now=value(first, name), seq=0, by=first.owner)
    for state in states[1:]:
        if upto is not None and state.since > upto.since:
            break
        if (now := value(state, name)) != found.now:
            found = Setting(name=name, before=found.now, now=now, seq=state.since, by=state.owner)
    return found


async def _dated(session: Session, one: Setting) -> Setting:
    record = await session.record_at(one.seq) if one.seq else None
    return one if record is None else replace(one, commit_ms=record.commit_ms)
