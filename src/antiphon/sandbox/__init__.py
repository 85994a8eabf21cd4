"""Running a command in a sandbox: bubblewrap, a seccomp filter, limits, each verified per run.

Knows nothing of jobs, logs or leases. `run` refuses where no sandbox is available, unless it is
explicitly told to run the command as a plain process; `probe` reports what this machine can do.
"""

from antiphon.sandbox.command import Command, Ended, Limits, Stream
from antiphon.sandbox.isolation.bubblewrap import environment_of
from antiphon.sandbox.sandboxed_run import run
from antiphon.sandbox.support import SandboxSupport, probe

__all__ = [
    "Command",
    "Ended",
    "Limits",
    "SandboxSupport",
    "Stream",
    "environment_of",
    "probe",
    "run",
]
