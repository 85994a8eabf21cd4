"""Settings of one process, read from the environment; every field has a unit and a default.

Values come from `ANTIPHON_*` environment variables; arguments given in code win over them. An
empty variable counts as unset. docs/settings.md lists them all; a test compares the two.

Loading this module loads pydantic, which takes longer than submitting a job. Code on that path
reads its settings through `antiphon.sdk.environment`.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from antiphon.core.policy.circuit_breaker import FAILURES, RESET_S
from antiphon.core.policy.selection import MAX_WEIGHT, check_labels, split_labels
from antiphon.core.record.ids import AGENT_PATTERN
from antiphon.errors import Misconfigured

PREFIX: Final = "ANTIPHON_"
MEMORY: Final = "memory"
"""Used instead of an address: the mesh runs inside the process that opens it."""
RESERVED_KEYS: Final = frozenset({"owner", "recovery", "machine"})
"""Key names that a service must not use: commands use them for a moment."""

_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_MESH_ID: Final = re.compile(r"[a-z2-7]{16}", re.ASCII)
_ADDRESS: Final = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_BUCKET: Final = re.compile(
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._=-]+){0,8}/?", re.ASCII
)
_STORE: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?", re.ASCII
)
_HTTP_TOKEN: Final = re.compile(r"[!-~]{16,256}", re.ASCII)
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_MAX_PORT: Final = 65_535


class Settings(BaseSettings):
    """One process's settings."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,  # what is unusable may still be a secret
    )

    home: Path | None = Field(
        default=None,
        description="State directory. Unset: the nearest `.antiphon` at or above the current one.",
    )
    mesh: bool = Field(
        default=True,
        description="Off: programs run in process, without a server, and nothing is founded.",
    )
    node: str | None = Field(
        default=None,
        description="Stable name of this process's key. Unset: the first free key of its role.",
    )
    agent: str | None = Field(
        default=None,
        description="Name of this process's agent, for locks, memory and messages. Unset: `main`.",
    )
    scope: str | None = Field(
        default=None,
        description="Id of the only mesh that this machine may open. Unset: any.",
    )
    engine: str | None = Field(
        default=None,
        description="Engine URL, or `memory`: inside the process. Unset: the state directory's.",
    )
    engine_token: SecretStr | None = Field(
        default=None, description="Token to log in to the engine with."
    )
    replica: Path | None = Field(
        default=None, description="File of the replica. Unset: in the state directory."
    )
    breaker: bool = Field(
        default=True,
        description="The circuit breaker: submits pause while the engine does not answer.",
    )
    breaker_failures: int = Field(
        default=FAILURES,
        ge=1,
        description="Submits in a row without an answer before the breaker opens.",
    )
    breaker_reset_s: float = Field(
        default=RESET_S,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that the breaker stays open before one submit tries again.",
    )
    control: str | None = Field(
        default=None,
        description="Address of the HTTP interface of a node or worker, `host:port`. Unset: none.",
    )
    http_token: SecretStr | None = Field(
        default=None,
        description="The operator's bearer token for it. Unset: the state directory's.",
    )
    cache_mb: int = Field(
        default=4096,
        ge=0,
        description="Megabytes of fetched artifacts that this machine caches; 0: none.",
    )
    value_mb: int = Field(
        default=256,
        ge=1,
        le=256,
        description="Megabytes of JSON that arguments or a result may have, and that the stored"
        " arguments of all jobs which a worker runs at once may have together.",
    )
    blobs: str | None = Field(
        default=None,
        description="Bucket for artifacts, `s3://bucket/prefix`. Unset: they stay on the mesh.",
    )
    blobs_endpoint: str | None = Field(
        default=None, description="Address of the bucket's store. Unset: Amazon's."
    )
    blobs_region: str | None = Field(
        default=None, description="Region of the bucket. Unset: the value of AWS_REGION."
    )
    secrets: Path | None = Field(
        default=None,
        description="Directory of secrets that commands may ask for. Unset: `secrets` in the"
        " state directory.",
    )
    command_memory_mb: int = Field(
        default=1024, ge=16, description="Megabytes of memory that each process of a command gets."
    )
    command_work_mb: int = Field(
        default=1024, ge=1, description="Megabytes that a command's work directory can hold."
    )
    slots: int = Field(
        default=8, ge=1, le=4096, description="Jobs that a worker runs at the same time."
    )
    drain_s: float = Field(
        default=20.0,
        ge=0,
        description="Seconds that running jobs get to finish when a worker stops.",
    )
    battery_low: int = Field(
        default=10,
        ge=0,
        le=90,
        description="Percent of the machine's battery at which a worker pauses and gives its jobs"
        " back; 0: never.",
    )
    labels: str = Field(
        default="",
        description="Labels of this machine's workers, separated by commas: `gpu=a100,eu`.",
    )
    weight: int = Field(
        default=1,
        ge=1,
        le=MAX_WEIGHT,
        description="Weight of this machine's workers under rendezvous selection.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning",
        description="Least severe event that is logged to standard error; for the command"
        " `worker` the default is `info`.",
    )
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto",
        description="Format of log lines: text, JSON, or JSON unless it is a terminal.",
    )

    @field_validator("node")
    @classmethod
    def _check_node(cls, value: str | None) -> str | None:
        if value is not None and _NODE.fullmatch(value) is None:
            raise ValueError("a key's name is letters, digits, '.', '_' and '-', at most 64")
        if value in RESERVED_KEYS:
            raise ValueError(
                f"{value!r} is reserved for commands; a service needs another key name"
            )
        return value

    @field_validator("agent")
    @classmethod
    def _check_agent(cls, value: str | None) -> str | None:
        if value is not None and re.match(AGENT_PATTERN, value) is None:
            raise ValueError("an agent's name is letters, digits, '_' and '-', at most 64")
        return value

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, value: str) -> str:
        check_labels(split_labels(value))
        return value

    @field_validator("scope")
    @classmethod
    def _check_scope(cls, value: str | None) -> str | None:
        if value is not None and _MESH_ID.fullmatch(value) is None:
            raise ValueError("a mesh id is 16 letters and digits, as 'antiphon doctor' shows it")
        return value

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, value: str | None) -> str | None:
        if value == MEMORY:
            return value
        for url in value.split(",") if value is not None else ():
            parts = urlsplit(url.strip())
            if parts.scheme not in {"nats", "tls"} or not parts.hostname:
                raise ValueError("an engine is an address like nats://host:4222, or 'memory'")
            if parts.username is not None or parts.password is not None:
                raise ValueError(
                    "credentials do not belong in an address: it is printed and logged"
                )
        return value

    @field_validator("blobs")
    @classmethod
    def _check_blobs(cls, value: str | None) -> str | None:
        if value is not None and _BUCKET.fullmatch(value) is None:
            raise ValueError("a bucket is s3://name or s3://name/prefix")
        return value

    @field_validator("blobs_endpoint")
    @classmethod
    def _check_blobs_endpoint(cls, value: str | None) -> str | None:
        if value is None:
            return None
        found = _STORE.fullmatch(value)
        if found is None:
            raise ValueError("a store's address is https://host or https://host:port")
        if found["scheme"] == "http" and not _is_loopback(found["host"]):
            raise ValueError("http is not encrypted: use https, or a loopback address")
        return value

    @field_validator("blobs_region")
    @classmethod
    def _check_blobs_region(cls, value: str | None) -> str | None:
        if value is not None and _REGION.fullmatch(value) is None:
            raise ValueError("a region looks like eu-central-1")
        return value

    @field_validator("replica")
    @classmethod
    def _check_replica(cls, value: Path | None) -> Path | None:
        if value is not None and value.is_dir():
            raise ValueError("that is a directory; give the replica's file")
        return value

    @field_validator("control")
    @classmethod
    def _check_control(cls, value: str | None) -> str | None:
        if value is not None:
            read_address(value)
        return value

    @field_validator("http_token")
    @classmethod
    def _check_http_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and _HTTP_TOKEN.fullmatch(value.get_secret_value()) is None:
            raise ValueError(
                "a token has 16 to 256 letters, digits and punctuation, and no space: try"
                " 'openssl rand -hex 32'"
            )
        return value


class HttpAddress(NamedTuple):
    """Where an HTTP interface listens."""

    host: str
    """A name, or an address without brackets."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return _is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> HttpAddress:
    """`host:port` as an address; `ValueError` says what one looks like."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _MAX_PORT:
        raise ValueError("an address is host:port, such as 127.0.0.1:7464 or [::1]:7464")
    return HttpAddress(found["host"].strip("[]"), int(found["port"]))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load() -> Settings:
    """The settings of this process; `Misconfigured` names the variable that cannot be used."""
    try:
        return Settings()
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        words = first["msg"].removeprefix("Value error, ")
    raise Misconfigured(f"{name} is not valid: {words}", hint=f"change or unset {name}")
