"""A world for one test: its machines are booted by hand, its jobs are called by hand."""

import asyncio

from antiphon.core import manifest
from antiphon.core.protocol import PROTOCOL
from simulator.actors.workload import Call
from simulator.seeds.world import Plan, World
from simulator.speedups import quiet_and_quick


def play(tmp_path, story, *, seed=1, authority="open", **more):
    """Run a story in a fresh world without faults; the world and what there is to say of it."""
    with quiet_and_quick():
        plan = Plan(seed=seed, chaos_s=0.0, jobs_per_hour=0.0, authority=authority, **more)
        world = World(plan, tmp_path)
        world.cluster.weather.clear()
        for machine in world.machines:
            machine.clock.correct()
        return world, world.run(story)


def call(number=1, *, kind="build.fast", duration_ms=1_000, fails=0, **terms):
    """One job to be called."""
    plain = {
        "at_s": 0.0,
        "priority": "normal",
        "attempts": None,
        "lease_ms": None,
        "timeout_s": 0,
        "start_within_ms": None,
        "is_limited": False,
        "delay_ms": None,
        "names_dep": False,
        "cancel_after_s": None,
    }
    return Call(number=number, kind=kind, duration_ms=duration_ms, fails=fails, **(plain | terms))


def key_of(one):
    return one.kind, manifest.job_id(one.manifest)


async def submit(world, *calls):
    """Let the first submitter call these jobs, and wait until they are on the log."""
    submitter = world.submitters[0]
    world.workload.calls[0].extend(calls)
    submitter.is_finished = False
    submitter.boot()
    await until(lambda: submitter.is_finished)


async def until(holds, *, within_s=600.0):
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while not holds():
        assert loop.time() < end_s, "it never came to pass"
        await asyncio.sleep(0.05)


def lane(world, key):
    return world.cluster.referee.lanes[key].job


def ended(world, *keys):
    return lambda: all(lane(world, key).is_terminal for key in keys)


def types_on(world, key):
    """Type and verdict of every record of a lane."""
    referee = world.cluster.referee
    found = []
    for seq in range(1, referee.log.last_seq + 1):
        record = referee.log.at(seq)
        if record.subject.endswith(f"{key[0]}.{key[1]}"):
            op = PROTOCOL.decoder.decode(record.payload.partition(b"\n")[0])
            found.append((op.type_name().removeprefix("job."), referee.verdicts[seq - 1].value))
    return found
