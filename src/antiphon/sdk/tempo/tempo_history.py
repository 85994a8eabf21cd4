"""The history of the tempo, for whatever is stamped with a beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.tempo.tempo_history import TempoHistory
from antiphon.runtime.replica.replica_tempo import spans_in

__all__ = ["TempoHistory", "tempo_history"]

if TYPE_CHECKING:
    from antiphon.sdk.connection.connection import Connection


async def tempo_history(connection: Connection) -> TempoHistory:
    """Policies as they are on the log; the changes of leaders as a node here has heard them.

    Nothing is replicated for it: a client that has no replica gets none.
    """
    await connection.session.sync_control()
    home, known = connection.home_of_files, connection.memory_replica
    if home is not None:
        heard = spans_in(home.replica)
    else:
        heard = known.tempo.spans() if known is not None else []
    return TempoHistory(connection.session.history.tempo_policies, heard)
