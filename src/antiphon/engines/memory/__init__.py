"""The memory engine: the executable reference of `antiphon.ports`.

    server = MemoryServer(clock)
    engine = MemoryEngine(server, "mymesh")

One `MemoryServer` is what the nodes of a cluster share; each node has a `MemoryEngine` of its
own. It is durable for as long as the process lives, never blocks, never polls, and can be made
to fail in every way that `antiphon.engines.memory.faults` lists.
"""

from antiphon.engines.memory.engine import MemoryEngine
from antiphon.engines.memory.server import MemoryServer

__all__ = ["MemoryEngine", "MemoryServer"]
