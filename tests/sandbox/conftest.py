"""What a machine without a sandbox means: not a quiet skip, unless somebody said so."""

import os
from itertools import count

import pytest

from antiphon.sandbox import SandboxSupport, probe

_naps = count()


@pytest.fixture
def nap() -> str:
    """Seconds to sleep, as nobody else on this machine writes them: a mark on a command line."""
    return f"150.{os.getpid()}{next(_naps):03d}"


@pytest.fixture(scope="session")
def able() -> SandboxSupport:
    found = probe()
    if found.can_sandbox:
        return found
    why = f"commands cannot run in a sandbox here: {'; '.join(found.problems)}"
    if os.environ.get("ANTIPHON_TESTS_WITHOUT_SANDBOX") == "1":
        pytest.skip(why)
    pytest.fail(
        f"{why}. scripts/system-packages installs what is needed; "
        "ANTIPHON_TESTS_WITHOUT_SANDBOX=1 leaves these tests out on purpose"
    )
