"""What a command may not exceed, and that nothing of it is left at its end."""

import asyncio
import os
import signal
import sys

import pytest

from antiphon.sandbox import Command, run
from tests.patience import PATIENCE_S
from tests.sandbox.shell import MIB, alive, name_of, shell, small, timed_out


async def test_a_timeout_asks_first(able, tmp_path):
    script = "trap 'echo asked; exit 4' TERM; echo ready; sleep 300 & wait"
    said = await timed_out(script, able, tmp_path, limits={"grace_s": PATIENCE_S})
    assert (said.ended.exit, said.out) == (4, "ready\nasked\n")


async def test_a_timeout_ends_what_does_not_listen(able, tmp_path, nap):
    script = f"trap '' TERM; (trap '' TERM; sleep {nap}) & echo ready; sleep {nap}; sleep {nap}"
    ended = (await timed_out(script, able, tmp_path)).ended
    assert ended.exit == -signal.SIGKILL
    assert alive(nap) == []


async def test_a_child_does_not_outlive_the_command(able, tmp_path, nap):
    script = f"setsid sh -c 'trap \"\" TERM HUP; sleep {nap}' >/dev/null 2>&1 & echo gone"
    said = await shell(script, able, tmp_path)
    assert (said.ended.exit, said.out) == (0, "gone\n")
    assert alive(nap) == []


async def test_cancelling_ends_the_whole_tree_before_it_returns(able, tmp_path, nap):
    script = f"(setsid sleep {nap} &); trap '' TERM; sleep {nap}"
    running = asyncio.ensure_future(shell(script, able, tmp_path))
    async with asyncio.timeout(PATIENCE_S):
        while len(alive(nap)) < 3:
            await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(nap) == []


async def test_a_room_that_somebody_else_ends_is_told_apart(able, tmp_path, nap):
    running = asyncio.ensure_future(shell(f"sleep {nap}; true", able, tmp_path))
    async with asyncio.timeout(PATIENCE_S):
        while "sleep" not in map(name_of, alive(nap)):
            await asyncio.sleep(0.02)
    os.kill(min(pid for pid in alive(nap) if name_of(pid) == "bwrap"), signal.SIGKILL)
    ended = (await running).ended
    assert (ended.reason, ended.exit) == ("killed", None)
    assert alive(nap) == []


WORKER = """
import asyncio, sys
from pathlib import Path
from antiphon.sandbox import Command, run
nap = sys.argv[2]
command = Command(argv=("sh", "-c", f"setsid sleep {nap} & trap '' TERM HUP; sleep {nap}"))
asyncio.run(run(command, work=Path(sys.argv[1]), on_output=lambda *_: None))
"""


async def test_a_worker_that_is_killed_takes_its_jobs_along(able, tmp_path, nap):
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(tmp_path), nap)
    async with asyncio.timeout(PATIENCE_S):
        while len([pid for pid in alive(nap) if name_of(pid) == "sleep"]) < 2:
            await asyncio.sleep(0.02)
        worker.kill()
        await worker.wait()
        while alive(nap):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("after_ms", [0, 1, 3, 6, 10])
async def test_cancelling_while_the_room_is_made_leaves_nothing(able, tmp_path, nap, after_ms):
    running = asyncio.ensure_future(shell(f"sleep {nap}", able, tmp_path))
    await asyncio.sleep(after_ms / 1000)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(PATIENCE_S):
        while alive(nap):
            await asyncio.sleep(0.02)


async def test_overlong_output_ends_it_and_is_cut(able, tmp_path):
    said = await shell("yes", able, tmp_path, limits=small(output_bytes=10_000))
    assert said.ended.reason == "output"
    assert len(said.out) == 10_000


async def test_streams_are_counted_apart(able, tmp_path):
    script = "head -c 9000 /dev/zero; head -c 9000 /dev/zero >&2"
    said = await shell(script, able, tmp_path, limits=small(output_bytes=9_000))
    assert (said.ended.reason, len(said.out), len(said.err)) == ("exited", 9_000, 9_000)


@pytest.mark.parametrize("place", ["/job", "/tmp", "/dev/shm"])
async def test_writable_places_are_sized(able, tmp_path, place):
    limits = small(work_bytes=MIB, scratch_bytes=MIB, file_bytes=64 * MIB)
    script = f"""
        head -c 8388608 /dev/zero > {place}/a
        exec 3< {place}/a; rm {place}/a
        head -c 8388608 /dev/zero > {place}/b  # what is deleted and still open counts
        stat -L -c %s /proc/self/fd/3; stat -c %s {place}/b"""
    said = await shell(script, able, tmp_path, limits=limits)
    sizes = [int(size) for size in said.out.split()]
    assert len(sizes) == 2
    assert 0 < sum(sizes) <= MIB


@pytest.mark.parametrize("place", ["/job", "/tmp"])
async def test_failing_with_a_full_directory_is_told_apart(able, tmp_path, place):
    said = await shell(f"head -c 8000000 /dev/zero > {place}/a", able, tmp_path)
    assert (said.ended.exit, said.ended.reason) == (1, "disk")
    assert (await shell("exit 1", able, tmp_path)).ended.reason == "exited"


async def test_everything_else_cannot_be_written_to(able, tmp_path):
    script = "for place in / /dev /etc /run /run/secrets /usr /usr/bin /proc /proc/sys/kernel; do "
    script += "touch $place/x 2>/dev/null && echo $place; done; mkdir /x 2>/dev/null && echo made"
    assert (await shell(script, able, tmp_path)).out == ""


async def test_too_many_files_end_it(able, tmp_path):
    script = "i=0; while :; do : > $i; i=$((i+1)); done"
    ended = (await shell(script, able, tmp_path, limits=small(files=500))).ended
    assert ended.reason == "disk"


async def test_a_large_file_is_cut_short(able, tmp_path):
    script = "truncate -s 1T sparse; head -c 4000000 /dev/zero > big; stat -c %s big"
    said = await shell(script, able, tmp_path, limits=small(file_bytes=MIB))
    assert said.out == f"{MIB}\n"


async def test_processor_time_is_counted_over_all_processes(able, tmp_path):
    script = "for i in 1 2 3; do (while :; do :; done) & done; wait"
    ended = (await shell(script, able, tmp_path, limits=small(cpu_s=1))).ended
    assert ended.reason == "cpu"
    assert 900 < ended.used.cpu_ms < 15_000


async def test_a_fork_bomb_stays_within_its_number(able, tmp_path):
    script = "f() { f | f & }; f; sleep 0.3; ls -d /proc/[0-9]* | wc -l"
    limits = small(processes=20)
    said = await shell(script, able, tmp_path, limits=limits)
    seen = [int(line) for line in said.out.split() if line.isdigit()]
    assert all(count <= 22 for count in seen)
    assert "fork" in said.err.lower()


async def test_one_process_cannot_take_more_memory_than_it_may(able, tmp_path):
    script = "head -c 300000000 /dev/zero | tail >/dev/null; exit $?"
    said = await shell(script, able, tmp_path, limits=small(memory_bytes=32 * MIB))
    assert said.ended.exit != 0


async def test_many_processes_together_cannot_either(able, tmp_path):
    hold = "(head -c 20000000 /dev/zero | tail | sleep 4) &"
    limits = small(memory_bytes=64 * MIB, work_bytes=MIB, scratch_bytes=MIB)
    script = f"for i in 1 2 3 4 5 6 7 8; do {hold} done; wait; exit 1"
    said = await shell(script, able, tmp_path, limits=limits)
    assert said.ended.reason == "memory"


async def test_a_listener_that_fails_ends_the_run(able, tmp_path, nap):
    def fail(*_):
        raise ZeroDivisionError

    command = Command(argv=("sh", "-c", f"echo x; sleep {nap}"), limits=small())
    with pytest.raises(ZeroDivisionError):
        await run(command, work=tmp_path, on_output=fail, abilities=able)
    assert alive(nap) == []
