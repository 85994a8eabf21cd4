"""A program with tasks whose jobs are mirrored, and git as a reader uses it."""

import os
import subprocess
from pathlib import Path

from antiphon import Mesh
from antiphon.interfaces.git.bridge import Following, serving

mesh = Mesh.open()


@mesh.task("shop.double")
def double(number: int) -> int:
    return 2 * number


async def mirrored(repo: Path, *, again: bool = False, name: str = "") -> int:
    """Bring a repository up to date with the log; how many refs were deleted."""
    following = Following(name=name)
    async with serving(repo, mesh, takes_jobs=False, following=following) as bridge:
        deleted = await bridge.mirror.rewrite() if again else 0
        await bridge.mirror.catch_up()
        return deleted


def git(repo: Path, *words: str, given: str = "", ok: bool = True) -> str:
    """Git's answer, with no configuration but the repository's own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "a reader", f"GIT_{who}_EMAIL": "reader@example.org"}
    done = subprocess.run(
        ["git", "-C", repo, *words],
        input=given,
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert not ok or done.returncode == 0, done.stderr
    return done.stdout.strip()


def refs(repo: Path) -> dict[str, str]:
    listed = git(repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/gatos")
    return dict(line.split() for line in listed.splitlines())


def trailers(repo: Path, commit: str) -> dict[str, str]:
    """A commit's trailers, as git itself reads them."""
    message = git(repo, "log", "-1", "--format=%B", commit)
    parsed = git(repo, "interpret-trailers", "--parse", given=message + "\n")
    return dict(line.split(": ", 1) for line in parsed.splitlines())
