"""The durable engine: every port on NATS JetStream (spec §3).

Everything that speaks NATS is here, and nothing that decides about jobs:

    credentials   keys and signed texts as NATS reads them
    connection    one connection: protocol, login, requests, the bus
    log           streams, appending, reading, following, queues, leases
    member        the engine of a member with limited permissions, through the gate
    server        our own nats-server, its accounts, permissions and certificates
    gate          the services that members ask (docs/decisions/0010)
    blobs         bytes by digest
    engine        all of it as one `ports.Engine`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.lazy_names import from_modules

if TYPE_CHECKING:
    from antiphon.core.visible_subjects import Reader
    from antiphon.engines.nats.connection.bus import NatsBus
    from antiphon.engines.nats.connection.login import Login
    from antiphon.engines.nats.connection.pinned_authority import pinned_authority
    from antiphon.engines.nats.credentials.keypairs import UserKey
    from antiphon.engines.nats.engine import NatsEngine
    from antiphon.engines.nats.gate.blob_service import BlobService
    from antiphon.engines.nats.gate.member_requests import MemberRequests
    from antiphon.engines.nats.gate.message_service import message_services
    from antiphon.engines.nats.gate.read_service import ReadService
    from antiphon.engines.nats.gate.relay_service import relay_service
    from antiphon.engines.nats.gate.roll_call_service import admits_readers, roll_call_service
    from antiphon.engines.nats.server.accounts import Accounts
    from antiphon.engines.nats.server.certificates import TlsFiles, client_context, server_files
    from antiphon.engines.nats.server.login_issuer import (
        NatsLoginIssuer,
        open_ear,
        system_connector,
        system_login,
    )
    from antiphon.engines.nats.server.process import LocalServer
    from antiphon.engines.nats.server.ticket_login import sign_ticket_login, ticket_login

__getattr__ = from_modules(
    __name__,
    {
        "Accounts": "antiphon.engines.nats.server.accounts",
        "BlobService": "antiphon.engines.nats.gate.blob_service",
        "LocalServer": "antiphon.engines.nats.server.process",
        "Login": "antiphon.engines.nats.connection.login",
        "MemberRequests": "antiphon.engines.nats.gate.member_requests",
        "NatsBus": "antiphon.engines.nats.connection.bus",
        "NatsEngine": "antiphon.engines.nats.engine",
        "NatsLoginIssuer": "antiphon.engines.nats.server.login_issuer",
        "ReadService": "antiphon.engines.nats.gate.read_service",
        "Reader": "antiphon.core.visible_subjects",
        "TlsFiles": "antiphon.engines.nats.server.certificates",
        "UserKey": "antiphon.engines.nats.credentials.keypairs",
        "admits_readers": "antiphon.engines.nats.gate.roll_call_service",
        "client_context": "antiphon.engines.nats.server.certificates",
        "message_services": "antiphon.engines.nats.gate.message_service",
        "open_ear": "antiphon.engines.nats.server.login_issuer",
        "pinned_authority": "antiphon.engines.nats.connection.pinned_authority",
        "relay_service": "antiphon.engines.nats.gate.relay_service",
        "roll_call_service": "antiphon.engines.nats.gate.roll_call_service",
        "server_files": "antiphon.engines.nats.server.certificates",
        "sign_ticket_login": "antiphon.engines.nats.server.ticket_login",
        "system_connector": "antiphon.engines.nats.server.login_issuer",
        "system_login": "antiphon.engines.nats.server.login_issuer",
        "ticket_login": "antiphon.engines.nats.server.ticket_login",
    },
)

__all__ = [
    "Accounts",
    "BlobService",
    "LocalServer",
    "Login",
    "MemberRequests",
    "NatsBus",
    "NatsEngine",
    "NatsLoginIssuer",
    "ReadService",
    "Reader",
    "TlsFiles",
    "UserKey",
    "admits_readers",
    "client_context",
    "message_services",
    "open_ear",
    "pinned_authority",
    "relay_service",
    "roll_call_service",
    "server_files",
    "sign_ticket_login",
    "system_connector",
    "system_login",
    "ticket_login",
]
