"""The composition root: the only place where an engine meets the runtime.

    stations    a process's place on a mesh        logins    how it gets past the engine's wall
    running     workers, full nodes, replicas      memory    a mesh inside one process
    hosting     the server and the gate of a mesh  joining   tickets, and what they become

What only some processes need is imported where it is used: a command line that submits one job
should not first load an engine in memory and the worker.
"""

from antiphon.assembly.memory_mesh import MemoryMesh
from antiphon.assembly.mesh_connection import MeshConnection, engine_info, join
from antiphon.assembly.node_services import local_replica, owned_replica, replicating, working

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
