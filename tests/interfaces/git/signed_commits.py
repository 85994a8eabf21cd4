"""Signed commits as a person makes them, with ssh-keygen and git."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interfaces.git.git_program import git


def require_ssh_keygen() -> None:
    """Skip where OpenSSH is missing; in CI that is a failure."""
    if shutil.which("ssh-keygen") is None:
        assert not os.environ.get("CI"), "ssh-keygen is missing: apt-get install openssh-client"
        pytest.skip("ssh-keygen is not installed")


def make_key(folder: Path, name: str = "id", type_: str = "ed25519") -> Path:
    """A new SSH key; its public half is beside it."""
    require_ssh_keygen()
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", type_, "-N", "", "-C", "a person", "-f", path]
    subprocess.run(words, check=True)
    return path


def add_manifest(*numbers: int, kind: str = "example.add") -> str:
    """A job.yaml that calls a handler."""
    arguments = json.dumps({"args": numbers, "kwargs": {}}, separators=(",", ":"))
    return json.dumps({"command": [f"@{kind}"], "args": [arguments], "timeout": 60})


class Writer:
    """Somebody with a clone, and maybe a key."""

    def __init__(self, folder: Path, key: Path | None = None) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet")
        if key is not None:
            git(folder, "config", "gpg.format", "ssh")
            git(folder, "config", "user.signingKey", str(key))
        self._signs = key is not None

    def commit(self, manifest: str, message: str = "a job\n\nKind: example.add") -> str:
        """Commit a job.yaml, signed if there is a key; the commit's id."""
        (self.folder / "job.yaml").write_text(manifest)
        git(self.folder, "add", "job.yaml")
        sign = ["-S"] if self._signs else []
        git(self.folder, "commit", "--quiet", "--allow-empty", *sign, "-m", message)
        return git(self.folder, "rev-parse", "HEAD")

    def push(self, where: str, *refs: str) -> tuple[bool, str]:
        """Push; whether it was taken, and what was said."""
        done = subprocess.run(
            ["git", "-C", self.folder, "push", where, *refs],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stderr
