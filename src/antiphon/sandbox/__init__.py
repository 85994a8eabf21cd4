"""Running a command shut in: bubblewrap, a seccomp filter, limits, and proof that they held.

Knows nothing of jobs, logs or leases. `run` refuses where a command cannot be shut in, unless it
is told in so many words to run it as a plain process; `probe` says what this machine can do.
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
