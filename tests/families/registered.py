"""Antiphon with polls: the three lines that register the family, and then any program.

    python -m tests.families.registered antiphon poll ls
    python -m tests.families.registered tests.families.hosted DIRECTORY

Everything that is imported after the first line finds the protocol with polls, as if it stood in
`antiphon.core.protocol`.
"""

import runpy
import sys

from antiphon.core import protocol
from tests.families.polls import POLLS

protocol.PROTOCOL = protocol.PROTOCOL.adding(POLLS)


def register() -> None:
    """What the recipe writes on `Mesh` and into `GROUPS`; imported late, with the protocol."""
    from antiphon import Mesh
    from antiphon.interfaces.cli import application
    from antiphon.sdk.connection.namespace import Namespace

    Mesh.polls = Namespace("tests.families.polls.namespace.Polls")
    Mesh.polls.__set_name__(Mesh, "polls")
    application.GROUPS["Agents"] += ("polls.poll",)
    application.COMMANDS["poll"] = "tests.families.polls.poll"


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    register()
    if sys.argv[0] == "antiphon":
        from antiphon.interfaces.cli import main

        sys.exit(main())
    runpy.run_module(sys.argv[0], run_name="__main__")
