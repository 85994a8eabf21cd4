"""A recovery key on screen: shown once, and deleted only when that was written.

A person writes it down as base32, in groups of four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.terminal import out

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.sdk.hosting.hosted_mesh import Hosting


def show_recovery(hosting: Hosting, show: Callable[[], None]) -> None:
    """Show a new mesh's recovery key, and delete its file once the output was written."""
    try:
        show()
    except OSError as problem:
        raise Misconfigured(
            f"the recovery key of the mesh {hosting.mesh.name!r} could not be shown:"
            f" standard output cannot be written ({problem.strerror})",
            hint="run 'antiphon init' in this directory again: it shows the same key. Until then"
            f" it is in {hosting.home.recovery_path}",
        ) from problem
    hosting.recovery_shown()


def say_recovery(hosting: Hosting) -> None:
    """Print the recovery key, for a person."""
    out.say("Recovery key: write it down now. It is shown only once and stored nowhere.")
    out.say("'antiphon recover' needs it to replace a lost or stolen owner key.")
    out.say(f"  {recovery_text(hosting.recovery_seed)}")
    out.say("")


def recovery_text(seed: bytes) -> str:
    """A recovery key as people write it down: base32, in groups of four."""
    import base64

    text = base64.b32encode(seed).decode().rstrip("=")
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def recovery_seed(text: str) -> bytes:
    """The key that a person wrote down, in any grouping."""
    import base64
    import binascii

    letters = "".join(letter for letter in text.upper() if letter.isalnum())
    try:
        seed = base64.b32decode(letters + "=" * (-len(letters) % 8))
    except binascii.Error:
        seed = b""
    if recovery_text(seed).replace("-", "") != letters or len(seed) != 32:  # noqa: PLR2004 - a key
        raise WrongUsage(
            "this is not a recovery key", hint="it has 13 groups of letters and digits"
        )
    return seed
