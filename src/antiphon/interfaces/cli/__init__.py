"""The command line: `antiphon dev`, `submit`, `show` and the rest.

Each command is one thin module that uses the SDK only. Nothing heavy is imported before the
command that needs it runs, so `--help` loads Typer and nothing else.

Standard output is the result and nothing else (with `--json`: one object, or one per line from
commands that keep running); everything else goes to standard error. Text from the log or from
other nodes is printed with its control characters escaped.

Exit codes, the same for every command:

      0  success                        5  rejected by the mesh's rules
      1  the job, or a check, failed    6  someone else holds it, or was first
      2  the command line is wrong      7  the data is corrupt
      3  something must be set up     130  interrupted
      4  the engine is unreachable, or the wait timed out
"""

from __future__ import annotations


def main() -> int:
    """Run the command line and return the process's exit code."""
    from antiphon.interfaces.cli.application import run

    return run()
