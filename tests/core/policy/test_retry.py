"""A person's retry: another job, whose id everybody can work out from the first."""

import pytest
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import Retry, ScheduleBody
from antiphon.core.policy import retry

BLOB = {"kind": "blobptr", "algo": "blake3", "hash": "blake3:" + "1" * 64}


def a_body(**fields):
    content = manifest.author({"command": ["make"], "args": ["all"], "timeout": 5, **fields})
    return ScheduleBody(
        kind="test.build",
        manifest=content,
        priority="high",
        retry=Retry(attempts=7),
        start_by=5_000,
        not_before=4_000,
        requires=("gpu",),
    )


def job_of(body):
    return manifest.job_id(body.manifest)


def test_a_retry_is_another_job_that_says_what_it_repeats():
    body = a_body()
    again = retry.retried(body, job_of(body))
    assert job_of(again) != job_of(body)
    assert again.retry_of == job_of(body)
    assert (again.kind, again.priority, again.retry, again.requires) == (
        body.kind,
        body.priority,
        body.retry,
        body.requires,
    )


def test_times_of_day_that_are_over_stay_behind():
    again = retry.retried(a_body(), "0" * 64)
    assert (again.start_by, again.not_before) == (None, None)


def test_the_same_job_has_the_same_retry_whoever_works_it_out():
    body = a_body()
    first, second = (retry.retried(body, job_of(body)) for _ in range(2))
    assert first == second
    assert job_of(first) == retry.retry_id(body, job_of(body))


def test_retries_of_retries_are_all_different_and_carry_one_nonce_each():
    body, seen = a_body(inputs=[BLOB]), set()
    for _ in range(20):
        seen.add(job_of(body))
        body = retry.retried(body, job_of(body))
        kinds = [type(one) for one in body.manifest.inputs]
        assert kinds == [manifest.BlobInput, manifest.NonceInput], "they do not pile up"
    assert len(seen) == 20


def test_an_alias_stays_with_the_job_that_it_names():
    body = a_body(ulid="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert not isinstance(retry.retried(body, job_of(body)).manifest.ulid, str)


@pytest.mark.parametrize("nonce", ["0" * 16, "f" * 64])
def test_the_nonce_of_the_first_call_is_replaced(nonce):
    body = a_body()
    body = replace(body, manifest=manifest.with_nonce(body.manifest, nonce, "key"))
    inputs = retry.retried(body, job_of(body)).manifest.inputs
    assert len(inputs) == 1
    assert inputs[0].nonce != nonce
