"""The composition root: the only place where an engine meets the runtime.

    mesh_connection   a process's connection, key and session
    offline_connection the same, while the engine cannot be reached
    logins            how it logs in to the engine, and renews that
    node_services     workers, full nodes and replicas
    command_executor  commands in the sandbox, with their inputs and outputs
    hosted_mesh       the server and the gate of a mesh
    membership        tickets: inviting and joining
    recovery          a new owner by the recovery key
    memory_mesh       a mesh inside one process

What only some processes need is imported where it is used: a command line that submits one job
should not have to load the memory engine and the worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.lazy_names import from_modules

if TYPE_CHECKING:
    from antiphon.assembly.memory_mesh import MemoryMesh
    from antiphon.assembly.mesh_connection import MeshConnection, engine_info, join
    from antiphon.assembly.node_services import (
        announcing,
        caught_up,
        local_replica,
        owned_replica,
        replicating,
        working,
    )

__getattr__ = from_modules(
    __name__,
    {
        "MemoryMesh": "antiphon.assembly.memory_mesh",
        "MeshConnection": "antiphon.assembly.mesh_connection",
        "announcing": "antiphon.assembly.node_services",
        "engine_info": "antiphon.assembly.mesh_connection",
        "join": "antiphon.assembly.mesh_connection",
        "caught_up": "antiphon.assembly.node_services",
        "local_replica": "antiphon.assembly.node_services",
        "owned_replica": "antiphon.assembly.node_services",
        "replicating": "antiphon.assembly.node_services",
        "working": "antiphon.assembly.node_services",
    },
)

__all__ = [
    "MemoryMesh",
    "MeshConnection",
    "announcing",
    "caught_up",
    "engine_info",
    "join",
    "local_replica",
    "owned_replica",
    "replicating",
    "working",
]
