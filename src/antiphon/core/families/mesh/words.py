"""A sentence for each op about the mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.mesh import ops
from antiphon.core.record.ids import short_node

if TYPE_CHECKING:
    from antiphon.core.record.op import Op


def sentence(op: Op) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    match op:
        case ops.MeshGenesis(body=body):
            return f"created the mesh {body.name!r}"
        case ops.MeshRules():
            return "changed the rules"
        case ops.MeshTempo(body=body):
            policy = body.policy
            return f"set the tempo to {policy.initial_bpm} bpm, {policy.bar_len_beats} beats a bar"
        case ops.MeshRoute(body=body) if body.target is None:
            return f"removed the route of {body.kind}"
        case ops.MeshRoute(body=body):
            return f"routed {body.kind} to {short_node(body.target or '')}"
        case ops.MeshCoordinator(body=body):
            return f"made {short_node(body.node)} the coordinator"
        case ops.MeshRecover(body=body):
            return f"made {short_node(body.owner)} the owner"
        case ops.MeshEvidence(body=body):
            return f"showed that {short_node(body.node)} signed two ops with one timestamp"
        case ops.MeshReadmit(body=body):
            return f"readmitted {short_node(body.node)}"
        case ops.NewerProtocol():
            return f"announced protocol {op.protocol}"
        case _:
            return f"wrote {op.type_name()}"
