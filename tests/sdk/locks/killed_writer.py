"""Writes to a fenced file and is killed before each of its steps, one after the other.

    python -m tests.sdk.locks.killed_writer FOLDER

For each line of the module that a write executes, a child in a folder of its own is killed just
before it. The last child runs to its end. Prints how many there were.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from antiphon.sdk.locks import fenced_file
from antiphon.sdk.locks.fenced_file import FencedFile

OLD, NEW = f"{0xFFF:016x}", f"{0x1000:016x}"


def write(folder: Path, step: int) -> None:
    """Write under a new fence, and die before this many steps are done."""
    left = step

    def traced(frame, event, _argument):
        nonlocal left
        if frame.f_code.co_filename != fenced_file.__file__:
            return None
        if event == "line":
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return traced

    sys.settrace(traced)
    FencedFile(folder / "notes").write_text("new", fence=NEW)
    os._exit(0)


def main(parent: Path, begin) -> int:
    """Kill a child at each step; how many there were."""
    step = 0
    while True:
        step += 1
        folder = parent / str(step)
        folder.mkdir()
        begin(folder)
        pid = os.fork()
        if not pid:
            write(folder, step)
        if os.waitpid(pid, 0)[1] == 0:
            shutil.rmtree(folder)
            return step - 1


def written(folder: Path) -> None:
    """Somebody wrote before, under an older fence."""
    FencedFile(folder / "notes").write_text("old", fence=OLD)


if __name__ == "__main__":
    parent = Path(sys.argv[1])
    for name, begin in (("first", lambda _folder: None), ("again", written)):
        (parent / name).mkdir()
        print(name, main(parent / name, begin))
