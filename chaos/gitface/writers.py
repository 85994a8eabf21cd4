"""People who submit jobs with git alone: a clone, an SSH key, `git commit -S` and `git push`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

KIND: Final = "sum.squares"
REF: Final = f"refs/gatos/jobs/new/{KIND}"
BRANCH: Final = "commit-"
"""Each commit goes to a branch of its own: one that moves on twice may be noticed once."""
AGAIN_S: Final = 0.1
_JOB: Final = re.compile(r"antiphon: job ([0-9a-f]{64}) (submitted|already there)")


def run_git(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Git, with no configuration but the repository's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env = {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "a writer", f"GIT_{who}_EMAIL": "writer@example.org"}
    words = ("git", "-C", str(folder), *words)
    return subprocess.run(words, input=given, capture_output=True, text=True, env=env, check=False)


def git(folder: Path, *words: str, given: str = "") -> str:
    """Git's answer; `SystemExit` if it fails."""
    done = run_git(folder, *words, given=given)
    if done.returncode != 0:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr}")
    return done.stdout.strip()


class Writer:
    """One of them."""

    def __init__(self, folder: Path) -> None:
        """Make a key and a clone."""
        self.folder = folder
        folder.mkdir(parents=True)
        key = folder.parent / f"{folder.name}.key"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)]
        subprocess.run(words, check=True)
        self.key = key.with_suffix(".key.pub").read_text()
        git(folder, "init", "--quiet")
        git(folder, "config", "gpg.format", "ssh")
        git(folder, "config", "user.signingKey", str(key))
        self.refused = 0
        """Pushes that were answered with no."""

    def _commit(self, number: int) -> str:
        arguments = json.dumps({"args": [number], "kwargs": {}}, separators=(",", ":"))
        manifest = {"command": [f"@{KIND}"], "args": [arguments], "timeout": 60}
        (self.folder / "job.yaml").write_text(json.dumps(manifest))
        git(self.folder, "add", "job.yaml")
        message = f"job {number}\n\nKind: {KIND}"
        git(self.folder, "commit", "--quiet", "--allow-empty", "-S", "-m", message)
        return git(self.folder, "rev-parse", "HEAD")

    def _push(self, repository: Path, commit: str) -> str:
        """The job's id; empty if the push did not succeed."""
        done = run_git(self.folder, "push", str(repository), f"{commit}:{REF}")
        found = _JOB.search(done.stderr)
        if done.returncode != 0 or found is None:
            self.refused += 1
            return ""
        return found[1]

    async def submit(self, repository: Path, number: int) -> tuple[str, str]:
        """Commit a job, push it until it is taken, and to a branch; commit and job's id."""
        commit = await asyncio.to_thread(self._commit, number)
        while not (job := await asyncio.to_thread(self._push, repository, commit)):
            await asyncio.sleep(AGAIN_S)
        branch = f"{commit}:refs/heads/{BRANCH}{number}"
        await asyncio.to_thread(git, self.folder, "push", "--quiet", str(repository), branch)
        return commit, job
