"""Proofs for completions that nobody ran: for tests, benchmarks and hostile members.

What a real run says of itself is put together in `antiphon.runtime.executors.proof_writer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.completion_proof import statement_of
from antiphon.core.proof import statement
from antiphon.core.record import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.jobs.ops import CompleteBody


def plain_proof(
    body: CompleteBody,
    mesh: str,
    by: str,
    sign: Callable[[str, bytes], bytes],
    /,
    **says: Any,
) -> statement.Proof:
    """A worker's proof of just what a completion says, but for what `says` changes."""
    fields = statement.Proof.__struct_fields__
    proof = statement.Proof(
        **{
            "sig": statement.UNSIGNED,
            "ended": body.fence,
            "runner": statement.Runner(name="test", version="1", platform="any"),
            "usage": Usage(wall_ms=1),
            **{name: value for name, value in says.items() if name in fields},
        }
    )
    said = statement_of(mesh, by, body, proof)
    bent = {name: value for name, value in says.items() if name not in fields}
    signed = replace(said, predicate=replace(said.predicate, **bent))
    return replace(proof, sig=sign(statement.PAYLOAD_TYPE, codec.encode(signed)))
