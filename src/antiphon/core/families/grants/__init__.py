"""Delegations and revocations (spec §6)."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.grants import ops, table
from antiphon.core.family import Family

GRANTS: Final = Family(
    name="grants",
    ops=(ops.UcanDelegate, ops.UcanRevoke),
    branches=(ops.UCAN, ops.REVOKE),
    entitled=table.entitled,
    last=table.last,
    step=table.step,
)
