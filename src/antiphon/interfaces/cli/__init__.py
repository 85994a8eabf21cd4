"""The command line: `antiphon dev`, `submit`, `show` and the rest.

Each command is one module of this package, thin, and speaks to the SDK only. Nothing heavy is
imported before the command that needs it runs: a person who types `--help` waits for Typer and
for nothing else.

Standard output is the answer and nothing but the answer (with `--json`: one object, or one per
line from what goes on and on); everything else is said on standard error. Text that comes from
the log or from other people is written with its control characters escaped.

Exit codes, the same for every command:

      0  it worked                      5  rejected by the mesh's rules
      1  the job, or a check, failed    6  someone else holds it, or was first
      2  the command line is wrong      7  what was read cannot be true: stop
      3  something must be set up     130  interrupted
      4  the engine is away, or the wait was too short
"""

from __future__ import annotations


def main() -> int:
    """Run the command line; the process's exit code."""
    from antiphon.interfaces.cli.application import run

    return run()
