"""The memory engine: the executable reference of `antiphon.ports`.

    server = MemoryServer(clock)
    engine = MemoryEngine(server, "mymesh")

All nodes share one `MemoryServer`; each node has its own `MemoryEngine`. It is durable while the
process runs, never blocks, never polls, and can be made to fail in every way that
`antiphon.engines.memory.faults` lists.
"""

from antiphon.engines.memory.engine import MemoryEngine
from antiphon.engines.memory.server import MemoryServer

__all__ = ["MemoryEngine", "MemoryServer"]
