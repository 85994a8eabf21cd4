"""Bar-bound tokens of this process's key: one for each bar, for calls to a node over HTTP.

    tokens = BarTokens(mesh, project="build", role="read")
    client = httpx.Client(auth=tokens)          # or requests, or headers=tokens.header()

A token is renewed on every downbeat, so a copy of one is useless a bar or two later. A process that
does not hear the beats makes one for each call, from that moment on: bars that it counts by itself
could be longer than those of the mesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from antiphon.core.bar_tokens.bar_token import (
    EVERY_PROJECT,
    ROLES,
    BarToken,
    Refusal,
    choose_chain,
    issue,
    kinds_of_project,
    open_token,
)
from antiphon.errors import Malformed, Rejected
from antiphon.read_back import read_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.tempo.meter import Meter
    from antiphon.ports import WallClock
    from antiphon.sdk.mesh import Mesh

R = TypeVar("R")


class BarTokens:
    """Makes tokens for one project and role."""

    def __init__(
        self,
        mesh: Mesh,
        *,
        project: str = EVERY_PROJECT,
        role: str = "read",
        meter: Callable[[], Meter | None] | None = None,
        wall: WallClock | None = None,
    ) -> None:
        """`project` is a kind prefix. `meter` gives the one in force; None: as it is heard."""
        if role not in ROLES:
            raise Malformed(
                f"{role!r} is not a role", reason="role", hint=f"choose from: {', '.join(ROLES)}"
            )
        if not kinds_of_project(project):
            raise Malformed(
                f"{project!r} is not a project",
                reason="project",
                hint="a project is the beginning of kinds, such as 'build', or '*' for all",
            )
        self._mesh = mesh
        self._project = project
        self._role = role
        self._meter = meter or self._heard
        self._wall = wall
        self._made: tuple[int, str] = (-1, "")

    def __repr__(self) -> str:
        return f"BarTokens(project={self._project!r}, role={self._role!r})"

    def token(self) -> str:
        """This bar's token; `Rejected` if this key's delegations do not allow one."""
        now_ms = (self._wall or self._mesh.connection.session.wall).now_ms()
        meter = self._meter()
        downbeat_ms = meter.downbeat_before(now_ms) if meter is not None else now_ms
        if downbeat_ms != self._made[0]:
            self._made = (downbeat_ms, self._sign(downbeat_ms, now_ms))
        return self._made[1]

    def header(self) -> dict[str, str]:
        """The header for a request that is sent now."""
        return {"Authorization": f"Bearer {self.token()}"}

    def __call__(self, request: R) -> R:
        """Put the header on a request: what httpx and requests call `auth`."""
        cast("Any", request).headers.update(self.header())
        return request

    def _heard(self) -> Meter | None:
        """The meter of the beats that this process hears; None without any."""
        clock = self._mesh.connection.clock
        return clock.meter() if clock.mode() != "local" else None

    def _sign(self, downbeat_ms: int, now_ms: int) -> str:
        session, keyring = self._mesh.connection.session, self._mesh.connection.keyring
        chain = choose_chain(
            session.control,
            keyring.did,
            project=self._project,
            role=self._role,
            now_ms=now_ms,
        )
        if isinstance(chain, Refusal):
            raise Rejected(
                f"this machine has no permission to {self._role!r} in project {self._project!r}",
                reason=chain,
                hint="'antiphon who' lists what it may do; on a mesh of 'antiphon dev' nobody has"
                " delegations: use the operator's token there",
            )
        token = BarToken(
            delegation=chain, project=self._project, role=self._role, downbeat_ms=downbeat_ms
        )
        text = issue(token, (keyring.did, keyring.sign), mesh=session.mesh)
        read_back("the token", token, _token_in, text, session.mesh)
        return text


def _token_in(text: str, mesh: str) -> BarToken:
    """What a node reads in a token."""
    found = open_token(text, mesh=mesh)
    if isinstance(found, Refusal):
        raise Rejected(f"its answer would be {found.value!r}", reason=found)
    return found.body


__all__ = ["EVERY_PROJECT", "ROLES", "BarTokens"]
