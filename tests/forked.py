"""Runs a function in a forked child and says what became of it."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable

from tests.patience import PATIENCE_S


def in_child(work: Callable[[], object]) -> str:
    """What the function returned in a child of this process, or its error, as text."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork
        pid = os.fork()
    if pid == 0:
        _answer(work, writes)
    os.close(writes)
    with os.fdopen(reads) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said or "the child hung"


def _answer(work: Callable[[], object], writes: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's timeout would wait for the child
    signal.alarm(int(PATIENCE_S))
    try:
        said = str(work())
    except BaseException as error:  # noqa: BLE001 - the child says everything
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}"
    os.write(writes, said.encode())
    os._exit(0)
