"""The engine that survives a power cut: every port on NATS JetStream (spec §3).

Holds what speaks NATS and nothing that decides anything about jobs. The map:

    server        a nats-server of our own        server_config   what it is told
    connection    up, down, in, out               client          nats-py, bent a little
    login         how one gets in                 refusals        why one did not, in a sentence
    wire          frames, headers, parsing        pipeline        many requests in flight
    stamps        commit stamps as integers       streams         the streams' exact settings
    records       reads by direct get             log             append and read
    lanes         one job's records               follow          the log as it grows
    work          shared queues by credit         leases          keys with an end
    bus           messages nobody stores          blobs           bytes by digest
    inspection    asking the system account       engine          all of it together

The second wall (docs/decisions/0010):

    keypairs      engine keys as text             jwts            signed texts
    accounts      who signs whose login           permissions     a scope as subjects
    wall          logins given and taken back     certificates    TLS of our own
    gatehouse     answers members' reads          readings        what those answers hold
    scoped        the log as a member reads it    sight           what a scope shows of it
    letterbox     members' revocations, stored    letters         the words about them
    readmission   coming back with another login
    blob_gate     members' blobs, in and out      scoped_blobs    blobs as a member reaches them
    blob_errands  the words between those two     blob_ledger     what each member stored
"""

from __future__ import annotations

from antiphon.engines.nats.connection.bus import NatsBus
from antiphon.engines.nats.credentials.keypairs import UserKey
from antiphon.engines.nats.engine import NatsEngine
from antiphon.engines.nats.gate.blob_service import BlobService
from antiphon.engines.nats.gate.member_requests import MemberRequests
from antiphon.engines.nats.gate.read_service import ReadService
from antiphon.engines.nats.gate.relay_service import RelayService
from antiphon.engines.nats.gate.roll_call_service import RollCallService
from antiphon.engines.nats.member.visible_subjects import Reader
from antiphon.engines.nats.server import permissions
from antiphon.engines.nats.server.accounts import Accounts
from antiphon.engines.nats.server.certificates import TlsFiles, client_context, server_files
from antiphon.engines.nats.server.login_issuer import (
    NatsLoginIssuer,
    open_ear,
    system_connector,
    system_login,
)
from antiphon.engines.nats.server.process import Credentials, LocalServer

__all__ = [
    "Accounts",
    "BlobService",
    "Credentials",
    "LocalServer",
    "MemberRequests",
    "NatsBus",
    "NatsEngine",
    "NatsLoginIssuer",
    "ReadService",
    "Reader",
    "RelayService",
    "RollCallService",
    "TlsFiles",
    "UserKey",
    "client_context",
    "open_ear",
    "permissions",
    "server_files",
    "system_connector",
    "system_login",
]
