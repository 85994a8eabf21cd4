"""What a run used: the primitives of cost, as integers in small units (spec §11).

    cpu_sec        cpu_ms             thousandths
    gpu_sec        reported.gpu_ms    thousandths, by device class
    accel_sec      reported.accel_ms  thousandths, by device class
    mem_gbs        mem_kbs            millionths: 1,000 bytes for one second
    disk_io_mb     disk_io_bytes      millionths
    net_egress_mb  net_egress_bytes   millionths
    storage_gbh    storage_kbh        millionths: 1,000 bytes for one hour

A GB is 10^9 bytes and an MB 10^6, as in price lists. Absent means "not measured", which is not
zero. What only the handler can know, it reports, and that is kept apart from what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.record.op import Count

MICRO: Final = 1_000_000
MILLI: Final = 1_000
HOUR_MS: Final = 3_600_000

DeviceClass = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}\Z")]
"""A class of devices with one price, such as `a100`."""
MAX_CLASSES: Final = 32
BY_CLASS: Final = "The time is in milliseconds, by device class."


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a proof; defaults are not written."""


class Reported(_Part, frozen=True, kw_only=True):
    """What the handler said that it used. Nobody measured it."""

    gpu_ms: Annotated[
        dict[DeviceClass, Count], Meta(max_length=MAX_CLASSES, description=BY_CLASS)
    ] = {}
    accel_ms: Annotated[
        dict[DeviceClass, Count], Meta(max_length=MAX_CLASSES, description=BY_CLASS)
    ] = {}


class Resources(_Part, frozen=True, kw_only=True):
    """What a run used of its machine. What is absent was not measured."""

    cpu_ms: Count | None = None
    max_rss_kb: Count | None = None
    mem_kbs: (
        Annotated[
            Count, Meta(description="Memory over time: 1,000 bytes for one second are 1 (mem_gbs).")
        ]
        | None
    ) = None
    disk_io_bytes: (
        Annotated[Count, Meta(description="Read from and written to disks (disk_io_mb).")] | None
    ) = None
    net_egress_bytes: (
        Annotated[
            Count,
            Meta(description="Sent from the run's own network namespace (net_egress_mb)."),
        ]
        | None
    ) = None
    storage_kbh: (
        Annotated[
            Count,
            Meta(
                description="Outputs stored outside the log, for as long as the mesh's rules keep"
                " them: 1,000 bytes for one hour are 1 (storage_gbh)."
            ),
        ]
        | None
    ) = None
    reported: Reported | None = None


class Usage(Resources, frozen=True, kw_only=True):
    """What a run used, as far as it was measured, and how long it took."""

    wall_ms: Count


def primitives(used: Resources) -> Iterator[tuple[str, int]]:
    """Every primitive that is known, by its name, in millionths of its unit."""
    if used.cpu_ms is not None:
        yield "cpu_sec", used.cpu_ms * (MICRO // MILLI)
    if used.reported is not None:
        yield from _by_class("gpu_sec", used.reported.gpu_ms)
        yield from _by_class("accel_sec", used.reported.accel_ms)
    millionths = {
        "mem_gbs": used.mem_kbs,
        "disk_io_mb": used.disk_io_bytes,
        "net_egress_mb": used.net_egress_bytes,
        "storage_gbh": used.storage_kbh,
    }
    for name, micro in millionths.items():
        if micro is not None:
            yield name, micro


def of_class(primitive: str, device: str) -> str:
    """How a primitive of one device class is called."""
    return f"{primitive}[{device}]"


def _by_class(primitive: str, times: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for device, ms in times.items():
        yield of_class(primitive, device), ms * (MICRO // MILLI)


def storage_kbh(stored_bytes: int, kept_ms: int) -> int:
    """What it takes to keep that many bytes for that long, rounded up."""
    return -(-stored_bytes * kept_ms // (1_000 * HOUR_MS))
