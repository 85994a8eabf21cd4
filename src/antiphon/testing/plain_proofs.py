"""Proofs for completions that nobody ran: for tests, benchmarks and hostile members.

What a real run says of itself is put together in `antiphon.runtime.proving`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from antiphon.core import proof

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.jobs.ops import CompleteBody
    from antiphon.core.outputs import DsseEnvelope


def plain_proof(
    body: CompleteBody,
    mesh: str,
    by: str,
    sign: Callable[[str, bytes], bytes],
    **says: Any,
) -> DsseEnvelope:
    """A worker's proof of just what a completion says, but for what `says` changes."""
    said = proof.Predicate(
        mesh=mesh,
        kind=body.kind,
        job=body.job,
        manifest=proof.Digests(blake3=body.job),
        worker=by,
        fence=body.fence,
        started=body.fence,
        ended=body.fence,
        status=body.status,
        exit=body.exit,
        runner=proof.Runner(name="test", version="1", platform="any"),
        isolation=proof.Isolation(level="none"),
        usage=proof.Usage(wall_ms=1),
    )
    return proof.seal_in(proof.statement(replace(said, **says), body.outputs), by, sign)
