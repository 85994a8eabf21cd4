"""`antiphon recover`: a new owner key, by the recovery key."""

from __future__ import annotations

import getpass
import sys

from antiphon.interfaces.cli import life
from antiphon.interfaces.cli.exits import Exit
from antiphon.interfaces.cli.init import recovery_seed, recovery_text
from antiphon.interfaces.cli.options import HomeOption, JsonOption, print_json, short_node
from antiphon.interfaces.cli.terminal import counted, out


def recover(home: HomeOption = None, *, as_json: JsonOption = False) -> int:
    """Replace a lost or stolen owner key.

    Asks for the recovery key (or reads it from standard input), makes a new owner key and a new
    recovery key here, and puts both in force. Everything that the old owner granted ends.
    """
    seed = recovery_seed(_asked())

    async def work() -> int:
        from antiphon.sdk.hosting import recover as put_in_force
        from antiphon.sdk.mesh import Home

        done = await put_in_force(Home.find(home), seed)
        written = recovery_text(done.recovery_seed)
        if as_json:
            print_json({"owner": done.owner, "replaced": done.replaced, "recovery": written})
            return Exit.OK
        out.say(
            f"{short_node(done.owner)} owns the mesh now; {short_node(done.replaced)} does not."
        )
        if done.grants_ended:
            out.say(
                f"{counted(done.grants_ended, 'grant')} of the old owner ended:"
                " invite those machines again, or use antiphon delegate"
            )
        out.say("")
        out.say("The new recovery key: write it down now, it is shown this once.")
        out.say(f"  {written}")
        return Exit.OK

    return life.run(work())


def _asked() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Recovery key: ")
    return sys.stdin.read(1024)
