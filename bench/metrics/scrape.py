"""Reads `/metrics` as a scraper does."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S: Final = 30.0
PREFIX: Final = "antiphon_"

Sample = tuple[str, ...]
"""A name without its prefix, and the values of its labels in the order of their names."""


async def fetch(port: int, token: str) -> str:
    """The text of `/metrics`."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
            )
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    if b" 200 " not in head.splitlines()[0]:
        raise SystemExit(f"/metrics answers {head.splitlines()[0].decode()}")
    return body.decode()


async def scrape(port: int, token: str) -> dict[Sample, float]:
    """Everything that `/metrics` says now."""
    text = await fetch(port, token)
    return {
        (one.name.removeprefix(PREFIX), *(one.labels[key] for key in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def named(samples: dict[Sample, float], name: str) -> dict[Sample, int]:
    """The samples of one metric, by the values of their labels; zeros left out."""
    return {key[1:]: int(value) for key, value in samples.items() if key[0] == name and value}
