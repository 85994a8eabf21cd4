"""What the command line says of silent workers, mistyped kinds, hanging handlers, full disks."""

import errno
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from antiphon.core.record.verdict import Verdict
from antiphon.interfaces.cli.checks.log import attention_findings
from antiphon.interfaces.cli.checks.machine import disk_finding
from antiphon.interfaces.cli.checks.nodes import silent_findings
from antiphon.interfaces.cli.commands.history.show import _running_words
from antiphon.interfaces.cli.commands.history.why import similar_kinds
from antiphon.interfaces.cli.screen.exits import Exit, complain
from antiphon.runtime.attention.attention_table import Attention


def held(number, by):
    return SimpleNamespace(kind="shop.order", id=f"{number}" * 64, claimer=by, deadline_ms=60_000)


def test_a_job_whose_worker_does_not_answer_is_a_warning_with_the_worker_and_the_job():
    jobs = [held(1, "did:key:zAda11111"), held(2, "did:key:zBob22222")]
    (found,) = silent_findings(jobs, {"did:key:zAda11111"})
    assert (found.level, found.check) == ("warning", "held")
    assert "1 job held by Bob22222, which does not answer: shop.order 22222222" in found.sentence
    assert "leases end by" in found.hint


def test_jobs_whose_workers_answer_are_nothing_to_speak_of():
    assert silent_findings([held(1, "did:key:zAda11111")], {"did:key:zAda11111"}) == []
    assert silent_findings([], set()) == []


def test_of_many_silent_jobs_three_are_named():
    (found,) = silent_findings([held(n, "did:key:zBob22222") for n in range(5)], set())
    assert found.sentence.startswith("5 jobs held by Bob22222")
    assert found.sentence.endswith("shop.order 22222222, …")


@pytest.mark.parametrize(
    "kind, meant",
    [("shop.ordr", ["shop.order"]), ("shop.order2", ["shop.order"]), ("mail.send", [])],
)
def test_a_kind_that_nobody_runs_is_compared_with_those_that_somebody_runs(kind, meant):
    assert similar_kinds(kind, {"shop.order", "example.add"}) == meant


def test_a_running_job_says_since_when_and_a_renewal_is_no_beginning():
    def line(words, commit_ms, verdict=Verdict.OK):
        return SimpleNamespace(op="job.claim", words=words, commit_ms=commit_ms, verdict=verdict)

    first = line("ada claimed it for 30 s and started it", 0)
    renewed = line("ada renewed the lease for 60 s", 2**60)
    refused = line("bob claimed it for 30 s", 2**60, Verdict.FENCE)
    told = _running_words([first, refused, renewed])
    assert told == _running_words([first])
    assert told.startswith("; this run began ")
    assert told.endswith("ago (antiphon cancel ends it)")
    assert _running_words([]) == ""


@pytest.mark.parametrize(
    "total, free, level",
    [
        (100 << 30, 2 << 30, "ok"),
        (100 << 30, 900 << 20, "warning"),
        (1 << 30, 200 << 20, "ok"),
        (1 << 30, 40 << 20, "warning"),
        (100 << 30, 0, "wrong"),
    ],
)
def test_a_disk_that_is_nearly_full_is_told_before_it_is_full(total, free, level):
    found = disk_finding(Path("/srv/mesh"), total, free)
    assert (found.level, found.check) == (level, "disk")
    assert bool(found.hint) == (level != "ok")


def test_a_full_disk_is_no_bug_and_says_what_to_do(capsys):
    full = OSError(errno.ENOSPC, "No space left on device", "/srv/mesh/keys/mark")
    assert complain(full, as_json=False) is Exit.MISCONFIGURED
    said = capsys.readouterr().err
    assert "is full (/srv/mesh/keys/mark)" in said
    assert "antiphon doctor" in said
    assert complain(OSError(errno.EIO, "broken"), as_json=False) is Exit.BUG


def aside(item, reason="it is too large", *, service="offers", whose="did:key:zBob22222", tries=3):
    now_ms = int(time.time() * 1000)
    return Attention(service, item, whose, reason, now_ms - 120_000, tries)


def test_doctor_names_what_a_service_set_aside_whose_it_is_and_why():
    (found,) = attention_findings([aside(f"shop.order {'1' * 64}")])
    assert (found.level, found.check) == ("warning", "offers")
    expected = "shop.order 11111111 of Bob22222: it is too large; 2 min ago, tried 3 times"
    assert found.sentence == expected
    assert attention_findings([]) == []


def test_doctor_names_a_few_of_many_and_says_that_there_is_more():
    found = attention_findings([aside(f"a {n}", whose="", tries=1) for n in range(9)])
    assert len(found) == 9
    assert found[0].sentence.startswith("a 0: it is too large; 2 min ago")
    assert found[-1].sentence == "there is more; these are the newest"
