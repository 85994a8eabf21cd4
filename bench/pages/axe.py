"""axe-core, which checks a page's accessibility: fetched once from npm, by its hash."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.pages.chromium import Browser

VERSION: Final = "4.14.0"
SHA256: Final = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
WITHIN_S: Final = 120.0


async def axe() -> str | None:
    """The script, from the cache or from npm; None if it cannot be had here."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon-bench"
    file = cache / f"axe-{VERSION}.min.js"
    if not file.is_file():
        if shutil.which("npm") is None:
            return None
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            await _fetch(Path(place), file)
    text = file.read_bytes()
    if hashlib.sha256(text).hexdigest() != SHA256:
        raise ValueError(f"{file} is not axe-core {VERSION}: delete it")
    return text.decode()


async def _fetch(place: Path, file: Path) -> None:
    packing = await asyncio.create_subprocess_exec(
        "npm",
        "pack",
        f"axe-core@{VERSION}",
        cwd=place,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(WITHIN_S):
        if await packing.wait():
            raise OSError(f"npm pack axe-core@{VERSION} failed")
    with tarfile.open(place / f"axe-core-{VERSION}.tgz") as packed:
        found = packed.extractfile("package/axe.min.js")
        if found is None:
            raise OSError("the package has no axe.min.js")
        file.write_bytes(found.read())


async def violations(tab: Browser, script: str) -> list[str]:
    """What is wrong with the page in a tab: the rule, and where it is broken first."""
    await tab.ask(f"(() => {{ {script} }})()")
    only = json.dumps({"runOnly": {"type": "tag", "values": RULES}})
    found = await tab.ask(
        f"axe.run(document, {only}).then((done) => done.violations.map((one) =>"
        " `${one.id}: ${one.help}: ${one.nodes[0].target.join(' ')}`))"
    )
    return [str(one) for one in found]
