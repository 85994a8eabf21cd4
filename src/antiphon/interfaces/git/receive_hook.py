"""What Git runs when somebody pushes: asks the bridge, and says what it answered.

Git calls it as the hooks `pre-receive`, `proc-receive` and `post-receive`. It is a program of its
own, with the standard library alone, since it is started for every push. Pushes that are not about
jobs do not concern it, and go on whether or not a bridge runs.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

GATOS = "refs/gatos/"
NEW = "refs/gatos/jobs/new/"
NOTES = "refs/notes/antiphon"
BRANCHES = "refs/heads/"
FOLDER = "antiphon"
SOCKET = "push.sock"
MOST_JOBS = 256
"""Jobs in one push."""
MAX_COMMIT_BYTES = 64 * 1024
MAX_TREE_BYTES = 512 * 1024
MAX_JOB_BYTES = 256 * 1024
ANSWER_S = 90.0


class Refused(Exception):
    """The push is refused, in these words."""

    def __init__(self, words: str, hint: str = "") -> None:
        super().__init__(words)
        self.hint = hint


class Bridge:
    """The bridge of this repository, over its socket."""

    def __init__(self) -> None:
        """Connect; `Refused` if no bridge runs."""
        here = Path.cwd()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        try:
            os.chdir(Path(os.environ.get("GIT_DIR", "."), FOLDER))
            self._socket.connect(SOCKET)  # a short address, wherever the repository is
        except OSError as problem:
            raise Refused(
                "no bridge answers in this repository, so it takes no jobs now"
                f" ({problem.strerror or problem})",
                "on the machine that has it: antiphon git serve REPO",
            ) from problem
        finally:
            os.chdir(here)
        self._file = self._socket.makefile("rwb")

    def ask(self, do: str, oid: str, ref: str) -> dict[str, object]:
        """The bridge's answer about one ref; `Refused` in its words."""
        return self._send({"do": do, "pushed": {"ref": ref, "oid": oid, **objects_of(oid)}})

    def look(self) -> dict[str, object]:
        """What became of the branches that it follows; `Refused` in its words."""
        return self._send({"do": "look"})

    def _send(self, request: dict[str, object]) -> dict[str, object]:
        try:
            self._file.write(json.dumps(request).encode() + b"\n")
            self._file.flush()
            line = self._file.readline()
        except OSError as problem:
            line, problem_words = b"", str(problem)
        else:
            problem_words = "it closed the connection"
        if not line:
            raise Refused(
                f"the bridge did not answer: {problem_words}",
                "push again: a job that it has submitted already is not submitted twice",
            )
        answer: dict[str, object] = json.loads(line)
        if not answer.get("ok"):
            raise Refused(str(answer.get("words")), str(answer.get("hint") or ""))
        return answer


def objects_of(oid: str) -> dict[str, str]:
    """The commit, its tree and its job.yaml, in base64."""
    names = {
        "commit": (oid, MAX_COMMIT_BYTES),
        "tree": (f"{oid}^{{tree}}", MAX_TREE_BYTES),
        "job": (f"{oid}:job.yaml", MAX_JOB_BYTES),
    }
    found: dict[str, str] = {}
    for what, (name, most) in names.items():
        size = git("cat-file", "-s", name)
        if size is None:
            found[what] = ""
            continue
        if int(size) > most:
            raise Refused(f"the {what} of {oid[:8]} has {int(size):,} bytes; at most {most:,}")
        type_ = {"commit": "commit", "tree": "tree", "job": "blob"}[what]
        found[what] = base64.b64encode(git("cat-file", type_, name) or b"").decode()
    return found


def git(*words: str) -> bytes | None:
    """Git's answer; None if it has none."""
    done = subprocess.run(["git", *words], capture_output=True, check=False)  # noqa: S603, S607 - in git's own environment
    return done.stdout if done.returncode == 0 else None


def say(words: str, hint: str = "") -> None:
    """What the person who pushes reads."""
    print(f"antiphon: {words}", file=sys.stderr)
    if hint:
        print(f"  try: {hint}", file=sys.stderr)


def pre_receive(lines: list[str]) -> int:
    """Refuse what may not be a job, before Git keeps any of its objects."""
    wanted = [line.split(" ", 2) for line in lines]
    ours = [(new, ref) for _, new, ref in wanted if ref.startswith(GATOS) or ref == NOTES]
    if not ours:
        return 0
    if len(ours) > MOST_JOBS:
        raise Refused(f"{len(ours)} jobs in one push; at most {MOST_JOBS}", "push fewer at a time")
    for new, ref in ours:
        if not ref.startswith(NEW) or not new.strip("0"):
            raise Refused(
                f"{ref} is written by the bridge alone",
                f"push a signed commit with a job.yaml to {NEW}KIND",
            )
    bridge = Bridge()
    for new, ref in ours:
        bridge.ask("check", new, ref)
    return 0


def proc_receive() -> int:
    """Submit the jobs, and tell Git under which ref each of them is now."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    read_section(source)
    send(target, b"version=1")
    flush(target)
    commands = [line.decode().split(" ", 2) for line in read_section(source)]
    bridge: Bridge | None = None
    for _, new, ref in commands:
        try:
            bridge = bridge or Bridge()
            answer = bridge.ask("submit", new, ref)
        except Refused as problem:
            say(str(problem), problem.hint)
            send(target, f"ng {ref} {problem}"[:1000].encode())
            continue
        state = "submitted" if answer.get("is_new") else "already there"
        print(f"antiphon: job {answer['job']} {state}", file=sys.stderr)
        send(target, f"ok {ref}".encode())
        send(target, f"option refname {answer['ref']}".encode())
        send(target, f"option new-oid {new}".encode())
    flush(target)
    return 0


def post_receive(lines: list[str]) -> int:
    """Let the bridge look at the branches, and say which commits are jobs now."""
    moved = {ref for _, _, ref in (line.split(" ", 2) for line in lines)}
    if not any(ref.startswith(BRANCHES) for ref in moved):
        return 0
    try:
        found = Bridge().look()
    except Refused as problem:
        say(f"the branch is there; its job comes later: {problem}")
        return 0
    noticed = found.get("noticed")
    for one in noticed if isinstance(noticed, list) else ():
        if one["ref"] in moved:
            branch = one["ref"].removeprefix(BRANCHES)
            print(f"antiphon: job {one['job']} for {branch}", file=sys.stderr)
    if found.get("waiting"):
        say("too many pushes in this minute; the newest commits become jobs later")
    return 0


def read_section(source: object) -> list[bytes]:
    """Lines of Git's packet format, up to the next flush."""
    lines: list[bytes] = []
    read = source.read  # type: ignore[attr-defined]
    while True:
        size = int(read(4) or b"0", 16)
        if size == 0:
            return lines
        lines.append(read(size - 4).rstrip(b"\n"))


def send(target: object, line: bytes) -> None:
    """One line in Git's packet format."""
    target.write(b"%04x" % (len(line) + 4) + line)  # type: ignore[attr-defined]


def flush(target: object) -> None:
    """The end of a section."""
    target.write(b"0000")  # type: ignore[attr-defined]
    target.flush()  # type: ignore[attr-defined]


def main(hook: str) -> int:
    """Be one of Git's hooks."""
    try:
        if hook == "proc-receive":
            return proc_receive()
        lines = sys.stdin.buffer.read().decode(errors="replace").strip("\n").split("\n")
        return post_receive(lines) if hook == "post-receive" else pre_receive(lines)
    except Refused as problem:
        say(str(problem), problem.hint)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
