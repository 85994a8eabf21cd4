"""The log for a page: figures, plots and the newest refusals."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.sdk.archive.archives import has_archive, open_archive
from antiphon.sdk.dashboard.node_names import aliases
from antiphon.sdk.dashboard.views import kinds_in_words

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.queries.log_status import LogStatus
    from antiphon.sdk.queries.page import Page
    from antiphon.sdk.queries.record_lists import Refusal

REFUSALS_LISTED: Final = 25


class ArchiveLine(Struct, frozen=True, kw_only=True):
    """How far the archive goes that this node writes."""

    upto: int = 0
    records: int = 0
    problem: str = ""
    """Why that is not known; empty: it is."""


class LogView(Struct, frozen=True, kw_only=True):
    """The page."""

    status: LogStatus
    names: dict[str, str]
    kinds: str
    """The kinds that this machine can read, in words; empty: all."""
    free_bytes: int
    archive: ArchiveLine | None
    """None: this node writes none."""
    refusals: Page[Refusal]
    words: dict[str, str]
    """What each verdict means."""
    mild: frozenset[str]
    """Verdicts of what repeats something that is already so."""


async def log_view(mesh: Mesh, after: str) -> LogView:
    """The log now; `after` is a cursor of the refusals."""
    status = await mesh.queries.log()
    return LogView(
        status=status,
        names=await aliases(mesh, {one.by for one in status.seals}),
        kinds=kinds_in_words(await mesh.queries.readable()),
        free_bytes=shutil.disk_usage(mesh.home.path).free,
        archive=await _archive(mesh.home.path) if await has_archive(mesh.home.path) else None,
        refusals=await mesh.queries.refusals(limit=REFUSALS_LISTED, after=after),
        words={one.value: one.in_words for one in Verdict},
        mild=frozenset(one.value for one in Verdict if one.is_accepted),
    )


async def _archive(home: Path) -> ArchiveLine:
    try:
        async with open_archive(home=home) as archive:
            found = await archive.status()
    except AntiphonError as problem:
        return ArchiveLine(problem=problem.message)
    return ArchiveLine(upto=found.upto, records=found.records)
