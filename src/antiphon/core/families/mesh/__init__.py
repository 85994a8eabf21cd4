"""The mesh as a whole: genesis, rules, routes, coordinator, owner, evidence (spec §7.4)."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.mesh import ops, table
from antiphon.core.family import Family

MESH: Final = Family(
    name="mesh",
    ops=(
        ops.MeshGenesis,
        ops.MeshRules,
        ops.MeshRoute,
        ops.MeshCoordinator,
        ops.MeshRecover,
        ops.MeshEvidence,
        ops.MeshReadmit,
        ops.MeshTempo,
        ops.MeshArchive,
        ops.MeshPause,
    ),
    branches=(
        ops.GENESIS,
        ops.RULES,
        ops.ROUTE,
        ops.COORDINATOR,
        ops.RECOVER,
        ops.EVIDENCE,
        ops.READMIT,
        ops.TEMPO,
        ops.ARCHIVE,
        ops.PAUSE,
    ),
    genesis=table.genesis,
    entitled=table.entitled,
    last=table.last,
    step=table.step,
    read_newer=table.newer_protocol,
)
