"""How a repository with many jobs behaves: mirror, clone, fetch, log and gc, in seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from antiphon.interfaces.git.bridge import serving
from antiphon.sdk.mesh import Mesh
from chaos.gitface.writers import KIND, git

SUBMITTED_AT_ONCE = 500


async def measure(owner: Mesh, repository: Path, jobs: int) -> dict[str, Any]:
    """Run so many jobs, mirror them into a new repository, and use it."""
    for at in range(0, jobs, SUBMITTED_AT_ONCE):
        count = min(SUBMITTED_AT_ONCE, jobs - at)
        handles = await owner.submit_many([owner.bind(KIND, at + one) for one in range(count)])
        for handle in handles:
            await handle.result()
    begun = time.monotonic()
    async with serving(repository, owner, has_bundles=False, takes_jobs=False) as bridge:
        await bridge.mirror.catch_up()
    mirror_s = time.monotonic() - begun
    clone = repository.with_name("size-clone.git")

    def timed(*words: str, folder: Path = repository) -> float:
        begun = time.monotonic()
        git(folder, *words)
        return round(time.monotonic() - begun, 2)

    listed = ("log", "--no-walk", "--glob=refs/gatos/jobs/*/result", "--format=%H%(trailers)")
    steps: dict[str, Callable[[], float]] = {
        "gc_s": lambda: timed("gc", "--quiet"),
        "clone_s": lambda: timed("clone", "--quiet", "--mirror", str(repository), str(clone)),
        "fetch_s": lambda: timed("fetch", "--quiet", folder=clone),
        "log_s": lambda: timed(*listed),
        "one_log_s": lambda: timed(*listed[:2], listed[3], some_result),
    }
    refs = git(repository, "for-each-ref", "--format=%(refname)", "refs/gatos").split()
    some_result = next(one for one in refs if one.endswith("/result"))
    found = {name: await asyncio.to_thread(step) for name, step in steps.items()}
    size = sum(one.stat().st_size for one in repository.rglob("*") if one.is_file())
    return {
        "size_jobs": jobs,
        "size_refs": len(refs),
        "mirror_s": round(mirror_s, 1),
        **found,
        "mb": round(size / 1e6, 1),
    }
