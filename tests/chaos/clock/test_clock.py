"""Clocks that jump, on real processes; and that the run would notice what must not happen."""

import asyncio
import json
import os
import random
import sys
import time

import pytest

from chaos.clock import command, fake_clock, jumps
from chaos.clock.fake_clock import FakeClock, SuspendableLoop
from chaos.clock.trials import RECOVERY_WITHIN_S, Plan
from tests.examples import size

needs_libfaketime = pytest.mark.skipif(fake_clock.library() is None, reason=fake_clock.MISSING)

FAKED_TO_S = 1.0
"""How exactly libfaketime takes an offset from its file."""
LOOK = """
import sys, threading, time
for line in sys.stdin:
    threading.Event().wait(0.01)
    print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
"""


@needs_libfaketime
async def test_a_faked_clock_moves_wall_time_and_no_other(tmp_path):
    fake = FakeClock(fake_clock.library(), tmp_path / "clock")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", LOOK),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=fake.environment,
    )

    async def look():
        process.stdin.write(b"\n")
        return [float(word) for word in (await process.stdout.readline()).split()]

    try:
        began = time.monotonic()
        wall, monotonic, boot = await look()
        for off_s in (3_600, -86_400, 0):
            fake.set(off_s)
            now = await look()
            took_s = time.monotonic() - began
            assert 0 <= now[0] - wall - off_s <= took_s + FAKED_TO_S
            assert 0 <= now[1] - monotonic <= took_s
            assert 0 <= now[2] - boot <= took_s
    finally:
        process.kill()
        await process.wait()


def test_a_suspended_loop_has_slept_less_than_the_machine(tmp_path):
    fake = FakeClock(tmp_path, tmp_path / "clock")
    loop = SuspendableLoop(fake.suspended_file)
    try:
        began, before = time.monotonic(), loop.time()
        fake.add_suspend(60.0)
        fake.add_suspend(40.0)
        slept_less_s = before - loop.time()
        assert 100 - (time.monotonic() - began) <= slept_less_s <= 100
    finally:
        loop.close()


async def test_without_the_library_it_says_so_and_shows_nothing(monkeypatch, capsys):
    monkeypatch.setattr(fake_clock, "DIRECTORIES", ("/nowhere",))
    plan = Plan(jumps=1, workers=1, at_once=1, seed=1)
    assert await command.run(plan) == 2
    heard = capsys.readouterr()
    assert "libfaketime" in json.loads(heard.out.splitlines()[-1])["skipped"]
    assert "apt-get install libfaketime" in heard.err


@needs_libfaketime
@pytest.mark.nats
@pytest.mark.long
async def test_clocks_that_jump_lose_nothing_and_whoever_was_wrong_goes_on(capsys):
    jumps = size(4, soak=8)
    plan = Plan(jumps=jumps, workers=3, at_once=2, seed=5)
    code = await command.run(plan)
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert said["trials"] == jumps
    assert said["acked"] > 2 * jumps
    assert (said["lost"], said["fence_reuse"], said["accepted_twice"]) == (0, 0, 0)
    assert 0 < said["recovery_s_max"] < RECOVERY_WITHIN_S


FINE = {
    "acked": 9,
    "succeeded": 9,
    "lost": 0,
    "fence_reuse": 0,
    "stuck": 0,
    "accepted_twice": 0,
    "unwitnessed": 0,
    "broken_laws": 0,
    "crashed": 0,
    "to_say": 10,
    "said": 6,
}


@pytest.mark.parametrize("name", [name for name in FINE if name not in {"said", "to_say"}])
def test_a_run_that_left_anything_behind_does_not_pass(name):
    assert command.holds(FINE)
    assert not command.holds({**FINE, name: FINE[name] + 1})


def test_a_run_in_which_wrong_clocks_went_unsaid_does_not_pass():
    assert not command.holds({**FINE, "said": 5})


def test_every_kind_of_jump_is_drawn_ahead_and_behind():
    chance = random.Random(1)
    drawn = [jumps.draw(chance) for _ in range(500)]
    assert {jump.how for jump in drawn} == {
        *(name for name, _, _ in jumps.SPANS),
        "drift",
        "suspend",
    }
    for name, least_s, most_s in jumps.SPANS:
        offs = [jump.by_s for jump in drawn if jump.how == name]
        assert min(offs) < 0 < max(offs)
        assert all(least_s <= abs(off) <= most_s for off in offs)
    assert any(jump.everybody for jump in drawn)
    assert any(jump.restarts for jump in drawn)


def test_processes_are_started_with_a_clock_of_their_own(tmp_path):
    one, two = (FakeClock(tmp_path, tmp_path / name) for name in ("one", "two"))
    file = "FAKETIME_TIMESTAMP_FILE"
    assert one.environment[file] != two.environment[file]
    assert one.environment["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
    assert "FAKETIME_TIMESTAMP_FILE" not in os.environ
