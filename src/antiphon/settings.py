"""Settings of one process, read from the environment; every field has a unit and a default.

Values come from `ANTIPHON_*` environment variables; arguments given in code win over them. An
empty variable counts as unset. docs/reference/settings.md lists them all; a test compares the two.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from antiphon.core.policy.circuit_breaker import FAILURES, RESET_S
from antiphon.core.policy.selection import MAX_WEIGHT, check_labels, split_labels
from antiphon.core.record.ids import AGENT_PATTERN
from antiphon.errors import AntiphonError, Misconfigured

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
_SWITCH: Final = {
    **dict.fromkeys(("1", "true", "on", "yes"), True),
    **dict.fromkeys(("0", "false", "off", "no"), False),
}


class Secret(Struct, frozen=True):
    """A text that shows in no log and no error."""

    value: str

    def __repr__(self) -> str:
        return "Secret(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("value", "…")]


class Settings(Struct, frozen=True, kw_only=True):
    """One process's settings."""

    home: Path | None = None
    """State directory. Unset: the nearest `.antiphon` at or above the current one."""
    node: str | None = None
    """Stable name of this process's key. Unset: the first free key of its role."""
    agent: str | None = None
    """Name of this process's agent, for locks, memory and messages. Unset: `main`."""
    only_mesh: str | None = None
    """Id of the only mesh that this machine may open. Unset: any."""
    engine: str | None = None
    """Engine URL, or `memory`: a mesh inside the program. Unset: the state directory's."""
    engine_token: Secret | None = None
    """Token to log in to the engine with."""
    replica: Path | None = None
    """File of the replica. Unset: in the state directory."""
    archive: str | None = None
    """Where the coordinator's full node writes the archive: a directory, or `s3://bucket/prefix`.
    Unset: it writes none."""
    purge: bool = True
    """Whether what has ended leaves the log once it is in the archive. Off: everything stays."""
    breaker: bool = True
    """The circuit breaker: requests pause while the engine does not answer."""
    breaker_failures: Annotated[int, Meta(ge=1)] = FAILURES
    """Requests in a row without an answer before the breaker opens."""
    breaker_reset_s: Annotated[float, Meta(gt=0)] = RESET_S
    """Seconds that the breaker stays open before one request tries again."""
    http_address: str | None = None
    """Address of the HTTP interface of a node or worker, `host:port`. Unset: none."""
    http_token: Secret | None = None
    """The operator's bearer token for it. Unset: the state directory's."""
    cache_mb: Annotated[int, Meta(ge=0)] = 4096
    """Megabytes of fetched artifacts that this machine caches; 0: none."""
    value_mb: Annotated[int, Meta(ge=1, le=256)] = 256
    """Megabytes of JSON that arguments or a result may have, and that the stored arguments of all
    jobs which a worker runs at once may have together."""
    blobs: str | None = None
    """Bucket for artifacts, `s3://bucket/prefix`. Unset: they stay on the mesh."""
    s3_endpoint: str | None = None
    """Address of the store that has the buckets. Unset: Amazon's."""
    s3_region: str | None = None
    """Region of the buckets. Unset: the value of AWS_REGION."""
    secrets: Path | None = None
    """Directory of secrets that commands may ask for. Unset: `secrets` in the state directory."""
    command_memory_mb: Annotated[int, Meta(ge=16)] = 1024
    """Megabytes of memory that each process of a command gets."""
    command_work_mb: Annotated[int, Meta(ge=1)] = 1024
    """Megabytes that a command's work directory can hold."""
    slots: Annotated[int, Meta(ge=1, le=4096)] = 8
    """Jobs that a worker runs at the same time."""
    drain_s: Annotated[float, Meta(ge=0)] = 20.0
    """Seconds that running jobs get to finish when a worker stops."""
    battery_low: Annotated[int, Meta(ge=0, le=90)] = 10
    """Percent of the machine's battery at which a worker pauses and gives its jobs back; 0:
    never."""
    labels: str = ""
    """Labels of this machine's workers, separated by commas: `gpu=a100,eu`."""
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    """Weight of this machine's workers under rendezvous selection."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Least severe event that is logged to standard error; for the command `worker` the default is
    `info`."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Format of log lines: text, JSON, or JSON unless it is a terminal."""


# --- what a value may be ------------------------------------------------------------------------


def _check_node(value: str) -> None:
    if _NODE.fullmatch(value) is None:
        raise ValueError("a key's name is letters, digits, '.', '_' and '-', at most 64")
    if value in RESERVED_KEYS:
        raise ValueError(f"{value!r} is reserved for commands; a service needs another key name")


def _check_agent(value: str) -> None:
    if re.match(AGENT_PATTERN, value) is None:
        raise ValueError("an agent's name is letters, digits, '_' and '-', at most 64")


def _check_mesh_id(value: str) -> None:
    if _MESH_ID.fullmatch(value) is None:
        raise ValueError("a mesh id is 16 letters and digits, as 'antiphon doctor' shows it")


def _check_engine(value: str) -> None:
    for url in value.split(",") if value != MEMORY else ():
        parts = urlsplit(url.strip())
        if parts.scheme not in {"nats", "tls"} or not parts.hostname:
            raise ValueError("an engine is an address like nats://host:4222, or 'memory'")
        if parts.username is not None or parts.password is not None:
            raise ValueError("credentials do not belong in an address: it is printed and logged")


def is_bucket(place: str) -> bool:
    """Whether a place for files is a bucket, and not a directory."""
    return place.startswith("s3://")


def check_bucket(value: str) -> None:
    """`ValueError` says what the address of a bucket looks like."""
    if _BUCKET.fullmatch(value) is None:
        raise ValueError("a bucket is s3://name or s3://name/prefix")


def _check_store(value: str) -> None:
    found = _STORE.fullmatch(value)
    if found is None:
        raise ValueError("a store's address is https://host or https://host:port")
    if found["scheme"] == "http" and not is_loopback(found["host"]):
        raise ValueError("http is not encrypted: use https, or a loopback address")


def _check_region(value: str) -> None:
    if _REGION.fullmatch(value) is None:
        raise ValueError("a region looks like eu-central-1")


def _check_replica(value: Path) -> None:
    if value.is_dir():
        raise ValueError("that is a directory; give the replica's file")


def _check_archive(value: str) -> None:
    if is_bucket(value):
        check_bucket(value)
    elif Path(value).exists() and not Path(value).is_dir():
        raise ValueError("that is a file; give a directory")


def _check_http_token(value: Secret) -> None:
    if _HTTP_TOKEN.fullmatch(value.value) is None:
        raise ValueError(
            "a token has 16 to 256 letters, digits and punctuation, and no space: try"
            " 'openssl rand -hex 32'"
        )


class HttpAddress(NamedTuple):
    """Where an HTTP interface listens."""

    host: str
    """A name, or an address without brackets."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> HttpAddress:
    """`host:port` as an address; `ValueError` says what one looks like."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _MAX_PORT:
        raise ValueError("an address is host:port, such as 127.0.0.1:7464 or [::1]:7464")
    return HttpAddress(found["host"].strip("[]"), int(found["port"]))


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_CHECKS: Final[Mapping[str, Callable[[Any], object]]] = {
    "node": _check_node,
    "agent": _check_agent,
    "only_mesh": _check_mesh_id,
    "engine": _check_engine,
    "replica": _check_replica,
    "archive": _check_archive,
    "http_address": read_address,
    "http_token": _check_http_token,
    "blobs": check_bucket,
    "s3_endpoint": _check_store,
    "s3_region": _check_region,
    "labels": lambda text: check_labels(split_labels(text)),
}

# --- reading ------------------------------------------------------------------------------------

S = TypeVar("S", bound=Settings)


def is_set(name: str) -> bool:
    """Whether the environment has a value for a setting."""
    return bool(os.environ.get(PREFIX + name.upper()))


def load() -> Settings:
    """The settings of this process; `Misconfigured` names the variable that cannot be used."""
    return load_as(Settings)


def load_as(wanted: type[S]) -> S:
    """The same as a class that adds to them."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(wanted):
        variable = PREFIX + field.name.upper()
        text = os.environ.get(variable, "")
        if not text:
            continue
        problem = ""
        try:
            values[field.name] = _read(field.type, text)
            _CHECKS.get(field.name, str)(values[field.name])
        except (AntiphonError, ValueError) as wrong:
            # Not as its cause: the words of others quote what was set, which may be a secret.
            problem = getattr(wrong, "message", "") or str(wrong)
        if problem:
            raise Misconfigured(
                f"{variable} is not valid: {problem}", hint=f"change or unset {variable}"
            )
    return wanted(**values)


def _read(wanted: Any, text: str) -> Any:
    """A text as a value of a field's type, or `ValueError` with what it should be."""
    if wanted is bool:
        if text.lower() not in _SWITCH:
            raise ValueError("it is on or off")
        return _SWITCH[text.lower()]
    for plain in (Path, Secret, str):
        if wanted is plain or plain in get_args(wanted):
            return plain(text)
    try:
        value = msgspec.convert(text, wanted, strict=False)
    except msgspec.ValidationError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(_in_words(wanted))
    return value


def _in_words(of: Any) -> str:
    """What a number, or one of several words, should be."""
    if get_origin(of) is Literal:
        return f"choose from: {', '.join(get_args(of))}"
    number, *limits = get_args(of)
    told = [
        f"{words} {getattr(limit, name):g}"
        for limit in limits
        for name, words in (("ge", "at least"), ("gt", "more than"), ("le", "at most"))
        if getattr(limit, name) is not None
    ]
    return f"it is a {'whole ' if number is int else ''}number, {' and '.join(told)}"
