"""Scopes that tests name by what they are for, on a log with the families of the protocol."""

from antiphon.core.authority.job_rights import CALLED_BY, READ_BY, WORKED_BY
from antiphon.core.authority.scope import Scope
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.subjects import calls_of, queue_name
from antiphon.core.protocol import PROTOCOL

BRANCHES = PROTOCOL.branches


def job_scope(reads=(), works=(), calls=(), until_s=None) -> Scope:
    """To read jobs of some kinds, to write on lanes of some, and to call (and so write on) some."""
    held = {"/job/read": reads, "/job/cancel": works, "/job/schedule": calls}
    by_command = {command: tuple(kinds) for command, kinds in held.items() if kinds}
    return Scope(by_command=by_command, until_s=until_s)


def reads(scope: Scope) -> tuple[str, ...]:
    return scope.of(*READ_BY)


def works(scope: Scope) -> tuple[str, ...]:
    return scope.of(*WORKED_BY)


def calls(scope: Scope) -> tuple[str, ...]:
    return scope.of(*CALLED_BY)


def job_queues(mesh: str, kind: str) -> dict[str, str]:
    """The queues of a kind, as the gate has them made."""
    return {queue_name(kind, one): calls_of(mesh, one, kind, below=False) for one in PRIORITIES}
