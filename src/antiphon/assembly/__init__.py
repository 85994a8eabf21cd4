"""The composition root: the only place where an engine meets the runtime.

    mesh_connection   a process's connection, key and session
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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.assembly.memory_mesh import MemoryMesh
    from antiphon.assembly.mesh_connection import MeshConnection, engine_info, join
    from antiphon.assembly.node_services import local_replica, owned_replica, replicating, working

_WHERE = {
    "MemoryMesh": "memory_mesh",
    "MeshConnection": "mesh_connection",
    "engine_info": "mesh_connection",
    "join": "mesh_connection",
    "local_replica": "node_services",
    "owned_replica": "node_services",
    "replicating": "node_services",
    "working": "node_services",
}

__all__ = [
    "MemoryMesh",
    "MeshConnection",
    "engine_info",
    "join",
    "local_replica",
    "owned_replica",
    "replicating",
    "working",
]


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{where}"), name)
