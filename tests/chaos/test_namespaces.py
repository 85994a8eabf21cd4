"""Partitions between real network stacks: what the switch does, and a small storm through it."""

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from chaos.namespaces import Impossible, Place, check_programs, try_one
from chaos.namespaces_switch import Switch, between, into, out_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PORT = 4001
ARRIVES_S = 2.0
STAYS_AWAY_S = 0.15
STORM = [sys.executable, "-m", "chaos", "partition", "--how", "namespaces"]


def leave_out(reason):
    """At a desk a skip; `.ci/run` leaves it out as well where it cannot be, and says so."""
    if os.environ.get("CI") and not os.environ.get("ANTIPHON_TESTS_WITHOUT_NAMESPACES"):
        pytest.fail(f"CI must not skip partitions in network namespaces: {reason}")
    pytest.skip(f"NO PARTITION WAS TRIED: {reason}")


@contextmanager
def places(count):
    try:
        check_programs()
        try_one()
    except Impossible as problem:
        leave_out(str(problem))
    with ExitStack() as stack:
        yield [stack.enter_context(Place(number)) for number in range(1, count + 1)]


class Post:
    """A socket that was opened in a place."""

    def __init__(self, place):
        self.place = place
        self.socket = place.call(self._open)

    def _open(self):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((self.place.address, PORT))
        one.setblocking(False)
        return one

    def send(self, to, text=b"hello"):
        self.socket.sendto(text, (to.place.address, PORT))

    async def hears(self, within_s=ARRIVES_S):
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.get_running_loop().sock_recv(self.socket, 100)
        except TimeoutError:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


async def test_places_hear_each_other_through_the_switch_and_not_without_it():
    with places(2) as (here, there), Post(here) as one, Post(there) as other:
        one.send(other)
        assert await other.hears(STAYS_AWAY_S) is None
        async with Switch([here, there], random.Random(1)):
            assert await other.hears() == b"hello"  # waited in the line
            other.send(one, b"back")
            assert await one.hears() == b"back"


def test_a_place_reaches_nothing_of_the_machine_that_it_is_on():
    with places(1) as (here,), socket.create_server(("127.0.0.1", 0)) as outside:

        def knock():
            with socket.create_connection(outside.getsockname(), timeout=1):
                return "came through"

        with pytest.raises(OSError, match="unreachable"):
            here.call(knock)


async def test_a_line_is_cut_one_way_or_both_and_whole_again_afterwards():
    with places(3) as all_places:
        async with Switch(all_places, random.Random(1)) as switch:
            with ExitStack() as stack:
                one, other, third = [stack.enter_context(Post(place)) for place in all_places]
                for pairs, forth, back in (
                    (out_of(one.place, [other.place]), None, b"hello"),
                    (into(one.place, [other.place]), b"hello", None),
                    (between(one.place, [other.place]), None, None),
                    ([], b"hello", b"hello"),
                ):
                    with switch.trouble(pairs, loss=1.0):
                        one.send(other)
                        other.send(one)
                        wait_s = ARRIVES_S if forth and back else STAYS_AWAY_S
                        assert await other.hears(wait_s) == forth
                        assert await one.hears(wait_s) == back
                        third.send(other)  # nobody else is concerned
                        assert await other.hears() == b"hello"


async def test_packets_are_late_or_lost_as_told():
    with places(2) as (here, there), Post(here) as one, Post(there) as other:
        async with Switch([here, there], random.Random(1)) as switch:
            with switch.trouble(between(here, [there]), late_s=(0.2, 0.3)):
                begun = time.monotonic()
                one.send(other)
                assert await other.hears() == b"hello"
                assert time.monotonic() - begun > 0.19
            with switch.trouble(between(here, [there]), loss=0.3):
                for _ in range(200):
                    one.send(other)
                    await asyncio.sleep(0)
                await asyncio.sleep(0.1)
            assert 30 <= switch.lost <= 90


async def test_an_interface_that_is_down_is_an_error_inside_and_works_when_it_is_up_again():
    with places(2) as (here, there), Post(here) as one, Post(there) as other:
        async with Switch([here, there], random.Random(1)):
            here.set_up(False)
            with pytest.raises(OSError, match="unreachable"):
                one.send(other)
            other.send(one)
            assert await one.hears(STAYS_AWAY_S) is None
            here.set_up(True)
            one.send(other)
            assert await other.hears() == b"hello"


def storm(*options):
    ended = subprocess.run(
        [*STORM, *options], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.stdout, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    if ended.returncode == 2:
        leave_out(said["skipped"])
    return ended, said


@pytest.mark.nats
def test_sites_on_networks_that_fail_lose_nothing():
    ended, said = storm("--faults", "4", "--jobs", "40", "--workers", "3", "--seed", "4")
    assert ended.returncode == 0, (said, ended.stderr)
    assert (said["jobs"], said["succeeded"]) == (40, 40)
    assert (said["lost"], said["accepted_twice"]) == (0, 0)
    assert said["faults"] >= 4
    assert said["packets_lost"] > 0


@pytest.mark.nats
def test_nothing_is_left_of_a_storm_that_was_killed(tmp_path):
    with subprocess.Popen(
        [*STORM, "--faults", "100", "--workers", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        try:
            deadline = time.monotonic() + 30
            while count_workers(tmp_path) < 3 and running.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if running.poll() == 2:
                leave_out(json.loads(running.stdout.read())["skipped"])
            assert processes_with(tmp_path)
        finally:
            running.kill()
    deadline = time.monotonic() + 10
    while processes_with(tmp_path):
        assert time.monotonic() < deadline, processes_with(tmp_path)
        time.sleep(0.05)


def count_workers(directory):
    return len(list(directory.glob("antiphon-chaos-*/logs/worker-*.log")))


def processes_with(directory):
    """Processes that have a file below the directory open."""
    found = set()
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(handle.readlink()).startswith(str(directory)):
                found.add(int(handle.parts[2]))
    return found
