"""Proofs for completions that nobody ran: for tests, benchmarks and hostile members.

What a real run says of itself is put together in `antiphon.runtime.executors.proof_writer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from antiphon.core.cost.usage import Usage
from antiphon.core.proof import statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.jobs.ops import CompleteBody
    from antiphon.core.proof.output import DsseEnvelope


def plain_proof(
    body: CompleteBody,
    mesh: str,
    by: str,
    sign: Callable[[str, bytes], bytes],
    **says: Any,
) -> DsseEnvelope:
    """A worker's proof of just what a completion says, but for what `says` changes."""
    said = statement.Predicate(
        mesh=mesh,
        kind=body.kind,
        job=body.job,
        manifest=statement.Digests(blake3=body.job),
        worker=by,
        fence=body.fence,
        started=body.fence,
        ended=body.fence,
        status=body.status,
        exit=body.exit,
        runner=statement.Runner(name="test", version="1", platform="any"),
        isolation=statement.Isolation(level="none"),
        usage=Usage(wall_ms=1),
    )
    return statement.put_in_envelope(
        statement.statement(replace(said, **says), body.outputs), by, sign
    )
