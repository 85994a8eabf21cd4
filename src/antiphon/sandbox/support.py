"""Tests whether this machine can run commands in a sandbox.

`probe` starts a small sandbox with everything that a job's would have and checks that it starts.
What is missing is reported in a sentence with its remedy: for `antiphon doctor`, and for the
worker that refuses commands because of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import AntiphonError, Misconfigured
from antiphon.sandbox.command import MIB, Command, Limits
from antiphon.sandbox.isolation import bubblewrap, cgroups, job_uids, seccomp
from antiphon.sandbox.isolation.bubblewrap_program import USUAL, find_bwrap
from antiphon.sandbox.open_files import OpenFiles

INSTALL: Final = "install it: apt-get install bubblewrap (or dnf, pacman, apk: the same name)"
_NEEDED: Final = ("--args", "--clearenv", "--perms", "--size", "--file")
_PATH: Final = USUAL
_TRIAL_S: Final = 10.0
_TRIAL: Final = Command(
    argv=("true",),
    limits=Limits(work_bytes=MIB, scratch_bytes=MIB),
)
_USERNS_SWITCHES: Final = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "allow user namespaces to /usr/bin/bwrap in an AppArmor profile",
    ),
)


class SandboxSupport(Struct, frozen=True, kw_only=True):
    """What this machine can do for this user."""

    tools: bubblewrap.Tools | None = None
    cgroup: cgroups.Parent | None = None
    problems: tuple[str, ...] = ()
    """Why no command can run in a sandbox; empty where one can."""
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is weaker than it could be, and why."""

    @property
    def can_sandbox(self) -> bool:
        """Whether a command can run in a sandbox at all."""
        return self.tools is not None and not self.problems

    def required(self) -> bubblewrap.Tools:
        """The tools, or `Misconfigured` with what to install."""
        if self.tools is None or self.problems:
            raise Misconfigured(
                "this machine cannot run commands in a sandbox: " + "; ".join(self.problems),
                hint="; ".join(self.remedies) or INSTALL,
            )
        return self.tools


def probe(*, hidden: tuple[Path, ...] = ()) -> SandboxSupport:
    """Inspect the machine and try. Takes some ten milliseconds; call it once and pass it on.

    `hidden` are the folders that commands must not see: if they cannot be hidden, none is run.
    """
    if sys.platform != "linux":
        return SandboxSupport(problems=(f"bubblewrap needs Linux, this is {sys.platform}",))
    if not seccomp.is_known() or not Path("/proc/sys/kernel/seccomp/actions_avail").exists():
        return SandboxSupport(
            problems=(f"no seccomp filter for this kernel on {os.uname().machine}",),
            remedies=("run jobs on x86_64 or aarch64, with a kernel that has seccomp",),
        )
    tools, problem, remedy = _tools()
    if tools is None:
        return SandboxSupport(problems=(problem,), remedies=(remedy,))
    try:
        bubblewrap.check_hidden(hidden)
    except Misconfigured as problem:
        return SandboxSupport(tools=tools, problems=(problem.message,), remedies=(problem.hint,))
    trial = replace(_TRIAL, hidden=hidden)
    failure = _trial(tools, trial)
    if failure and tools.ends_userns:
        tools = replace(tools, ends_userns=False)
        failure = _trial(tools, trial)
    if failure:
        remedies = tuple(_userns_remedies()) or ("a container needs permission to make namespaces",)
        return SandboxSupport(tools=tools, problems=(failure,), remedies=remedies)
    parent, why = cgroups.find()
    notes = (
        []
        if parent
        else [f"no cgroup, so total memory is sampled, not limited by the kernel: {why}"]
    )
    if tools.setpriv is None and not tools.ends_userns:
        notes.append("only the seccomp filter prevents further user namespaces")
    return SandboxSupport(tools=tools, cgroup=parent, notes=tuple(notes))


def _tools() -> tuple[bubblewrap.Tools | None, str, str]:
    """The programs, or what is wrong and what to do about it."""
    bwrap, why = find_bwrap(_PATH)
    if bwrap is None:
        return None, why or "bubblewrap (bwrap) is not installed", INSTALL
    version, manual = _said(bwrap, "--version"), _said(bwrap, "--help")
    known = re.fullmatch(r"bubblewrap ([0-9.]+)", version.strip())
    absent = [option for option in _NEEDED if f"{option} " not in manual]
    if known is None or absent:
        return None, f"this bubblewrap is too old: it has no {', '.join(absent)}", INSTALL
    sh, env = (shutil.which(name, path=_PATH) for name in ("sh", "env"))
    is_root = os.geteuid() == 0
    setpriv = shutil.which("setpriv", path=_PATH) if is_root else None
    if sh is None or env is None or (is_root and setpriv is None):
        return None, "sh, env or setpriv is missing", "install coreutils and util-linux"
    tools = bubblewrap.Tools(
        bwrap=bwrap,
        version=known[1],
        sh=sh,
        env=env,
        setpriv=setpriv,
        ends_userns=not is_root and "--disable-userns " in manual,
    )
    return tools, "", ""


def _said(program: str, option: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a program that nobody else can change
            [program, option],
            capture_output=True,
            text=True,
            env={},
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _trial(tools: bubblewrap.Tools, trial: Command) -> str:
    """What went wrong in an empty sandbox, or nothing."""
    with ExitStack() as stack:
        files = stack.enter_context(OpenFiles())
        try:
            is_root = tools.setpriv is not None
            uid = stack.enter_context(job_uids.borrowed()) if is_root else os.getuid()
            line = bubblewrap.words(tools, trial, uid, files.holding, seccomp.program())
            done = subprocess.run(  # noqa: S603 - as above
                line,
                input=bubblewrap.GO,
                capture_output=True,
                env={},
                pass_fds=files.numbers,
                timeout=_TRIAL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired, AntiphonError) as problem:
            return f"a test sandbox did not start: {problem}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}"
    return f"a test sandbox failed: {said.splitlines()[-1]}"


def _userns_remedies() -> list[str]:
    found = []
    for name, off, remedy in _USERNS_SWITCHES:
        switch = Path("/proc/sys", name)
        if switch.exists() and switch.read_text().strip() == off:
            found.append(remedy)
    return found
