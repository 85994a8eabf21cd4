"""`chaos coordinator`, as small as it still shows something; and that it would find a fault."""

import json

import pytest

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from chaos.coordinator.command import Run, execute
from chaos.coordinator.derived_jobs import DerivedJobs

PLAN, REACTION = "blake3:" + "0" * 64, "blake3:" + "1" * 64
CRON = {PLAN: (1_500, 1, 4_000)}
REACTIONS = {REACTION: (5, "load.work", 100)}


def schedule(seq: int, plan: str, verdict=Verdict.OK, subject="a", **derived):
    op = {"type": "job.schedule", "deps": [[1, plan]], "body": {"derived": derived}}
    return Record(seq, 0, subject, json.dumps(op).encode() + b"\n{}"), verdict


def end(seq: int, job: str, kind="load.work", status="succeeded"):
    op = {"type": "job.complete", "body": {"job": job, "kind": kind, "status": status}}
    return Record(seq, 0, "b", json.dumps(op).encode() + b"\n{}"), Verdict.OK


GOOD = [
    *(schedule(10 + n, PLAN, tick_ms=1000 * n) for n in (2, 3, 4)),
    end(20, "x"), end(21, "y", kind="other"), end(22, "z", status="failed"), end(3, "w"),
    schedule(23, REACTION, job="x"),
]  # fmt: skip


@pytest.mark.parametrize(
    "change, wrong",
    [
        (lambda log: log, {}),
        (lambda log: log[1:], {"missed": 1}),
        (lambda log: log[:-1], {"missed": 1}),
        (lambda log: [*log, schedule(30, PLAN, tick_ms=2_000, subject="c")], {"fired_twice": 1}),
        (lambda log: [*log, schedule(30, REACTION, job="x", subject="c")], {"fired_twice": 1}),
        (lambda log: [*log, schedule(30, PLAN, tick_ms=2_500)], {"unasked": 1}),
        (lambda log: [*log, schedule(30, REACTION, job="y")], {"unasked": 1}),
        (lambda log: [*log, schedule(30, PLAN, Verdict.EXISTS, tick_ms=2_000)], {"refused": 1}),
        (lambda log: [*log, schedule(30, PLAN, tick_ms=5_000)], {}),
    ],
)
def test_the_comparison_finds_what_is_wrong(change, wrong):
    found = DerivedJobs()
    for record, verdict in change(GOOD):
        found.add(record, verdict)
    counted = found.compare(CRON, REACTIONS)
    names = ("missed", "fired_twice", "unasked", "refused")
    assert {name: n for name in names if (n := getattr(counted, name))} == wrong
    assert (counted.ticks, counted.reactions) == (3, 1)


@pytest.mark.nats
@pytest.mark.long
@pytest.mark.req("P13")
async def test_every_tick_and_reaction_once_through_kills_and_redesignations(capsys):
    code = await execute(Run(redesignations=5, per_s=4.0, seed=3))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["fired_twice"], said["missed"], said["redesignations"]) == (0, 0, 5)
