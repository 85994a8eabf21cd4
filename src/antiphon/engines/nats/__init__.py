"""The engine that survives a power cut: every port on NATS JetStream (SPEC §3).

Holds what speaks NATS and nothing that decides anything about jobs. The map:

    server      a nats-server of our own          connection  up, down, in, out
    wire        frames, headers, parsing          pipeline    many requests in flight
    stamps      commit stamps as integers         streams     the streams' exact settings
    records     reads by direct get               log         append and read
    lanes       one job's records                 follow      the log as it grows
    work        shared queues by credit           leases      keys with an end
    bus         messages nobody stores            blobs       bytes by digest
    inspection  asking the system account         client      nats-py, bent a little
    engine      all of it together
"""

from __future__ import annotations

from antiphon.engines.nats.engine import NatsEngine
from antiphon.engines.nats.server import Credentials, LocalServer, ServerUser

__all__ = ["Credentials", "LocalServer", "NatsEngine", "ServerUser"]
