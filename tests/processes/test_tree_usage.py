"""What a process and those below it use, sampled from outside."""

import asyncio
import subprocess
import sys

import pytest

from antiphon.processes import procfs
from antiphon.processes.tree_usage import TreeUsage
from tests.runtime.meshes import eventually

pytestmark = [pytest.mark.processes, pytest.mark.req("B21")]

BUSY = "import os,sys\nblock = bytearray(40_000_000)\nprint('up', flush=True)\nwhile True: pass"


async def test_processor_time_and_memory_of_a_tree_are_seen_from_outside():
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        told = []
        tree = TreeUsage(process.pid, told.append)
        try:
            assert await asyncio.to_thread(process.stdout.readline) == b"up\n"
            tree.start()
            await eventually(lambda: told[-1].cpu_ms > 200)
        finally:
            tree.stop()
            for pid in [process.pid, *procfs.descendants(process.pid)]:
                subprocess.run(["kill", "-9", str(pid)], check=False)
    assert told[0].cpu_ms == 0, "what was used before the first sample does not count"
    assert told[-1].max_rss_kb > 40_000
    assert told[-1].mem_kbs > 0.15 * 40_000, "40 MB, for the time that its processor time took"


def test_a_process_that_is_gone_has_used_nothing_that_is_known():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert TreeUsage(process.pid).used().cpu_ms is None


def test_loopback_does_not_count_as_sent():
    before = procfs.sent_bytes(1)
    assert isinstance(before, int)
    assert before >= 0
