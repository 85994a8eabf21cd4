"""The columns by which a replica can query plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.family import Column, Evicted, Index
from antiphon.core.manifest import blobs_read

if TYPE_CHECKING:
    from antiphon.core.families.plans.state import Plan


def _author(plan: Plan) -> str | None:
    """Who put it, while it stands."""
    return None if plan.is_dropped else plan.author


def _root(plan: Plan) -> str | None:
    """The first delegation that it was put under, while it stands; without any, its author.

    Whoever passes its permission on cannot make another: only the owner issues first delegations.
    """
    return None if plan.is_dropped else (*plan.auth, plan.author)[0]


COLUMNS: Final = (
    Column("state", "text", lambda plan: "dropped" if plan.is_dropped else "standing"),
    Column("author", "text", _author),
    Column("root", "text", _root),
    Column("put_seq", "integer", lambda plan: plan.put_seq),
)
INDEXES: Final = (
    Index(("author", "first_seq", "put_seq"), of="author"),
    Index(("root", "first_seq", "put_seq"), of="root"),
)


def blobs(plan: Plan) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
    """Digests that every job of the plan reads, while it stands."""
    return (() if plan.is_dropped else blobs_read(plan.body.manifest)), ()
