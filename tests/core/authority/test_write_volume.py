"""Counting what is written: the heavy are found among any number of others, in bounded memory."""

import tracemalloc

import pytest

from antiphon.core.authority.write_volume import (
    AUTHOR_BYTES,
    CONTROL,
    KEYS_KEPT,
    REFUSED_BYTES,
    SLOT_MS,
    WINDOW_MS,
    Volumes,
    writers,
)
from tests.core.authority.test_grant_tree import BUILD, OWNER, RENDER, Book
from tests.core.ucan import principals
from tests.core.ucan.principals import BOB, CAROL, DAN, delegate
from tests.examples import size

NOW = 1_000 * WINDOW_MS


def test_refused_bytes_beyond_the_bound_name_their_kind_and_whoever_signed():
    volumes = Volumes()
    for _ in range(65):
        volumes.note(NOW, "render.video", "did:a", 1 << 20, is_accepted=False)
        volumes.note(NOW, "build.x", "did:b", 1 << 20, is_accepted=True)
    found = volumes.excesses(NOW)
    assert {(one.what, one.name) for one in found} == {("kind", "render"), ("author", "did:a")}
    assert {one.volume.refused_bytes for one in found} == {65 << 20}


def test_accepted_bytes_of_one_author_beyond_the_bound_are_told_and_of_many_are_not():
    volumes = Volumes()
    for number in range(33):
        volumes.note(NOW, "k.x", "did:one", AUTHOR_BYTES // 32, is_accepted=True)
        volumes.note(NOW, "k.x", f"did:{number}", AUTHOR_BYTES // 32, is_accepted=True)
    assert [(one.what, one.name) for one in volumes.excesses(NOW)] == [("author", "did:one")]


def test_an_hour_is_forgotten_and_what_is_older_is_not_counted():
    volumes = Volumes()
    volumes.note(NOW, "k.x", "", REFUSED_BYTES + 1, is_accepted=False)
    assert volumes.excesses(NOW + WINDOW_MS - SLOT_MS)
    assert not volumes.excesses(NOW + WINDOW_MS + SLOT_MS)
    volumes.note(NOW + 2 * WINDOW_MS, "k.x", "", 1, is_accepted=False)
    volumes.note(NOW, "k.x", "", REFUSED_BYTES + 1, is_accepted=False)
    assert not volumes.excesses(NOW + 2 * WINDOW_MS)


def test_records_about_no_job_count_as_control():
    volumes = Volumes()
    volumes.note(NOW, "", "", 1, is_accepted=False)
    assert volumes.within(NOW)["kind", CONTROL].records == 1


@pytest.mark.parametrize("every", [1, 3, 11])
def test_a_crowd_of_keys_hides_nobody(every):
    """Whoever writes much is found, however many keys and kinds it invents around it."""
    volumes = Volumes()
    for number in range(3 * KEYS_KEPT):
        volumes.note(NOW, f"k{number}.x", f"did:{number}", 100, is_accepted=False)
        if number % every == 0:
            volumes.note(NOW, "flood.x", "did:flood", 1 << 20, is_accepted=False)
    found = {(one.what, one.name) for one in volumes.excesses(NOW)}
    assert {("kind", "flood"), ("author", "did:flood")} <= found


@pytest.mark.slow
def test_what_is_kept_is_bounded():
    """Twice as many names as are kept in each slot, and more."""
    volumes = Volumes()
    slots = size(3, soak=12)
    tracemalloc.start()
    try:
        for number in range(slots * size(1_000, soak=2_000)):
            slot = number % slots * SLOT_MS
            volumes.note(NOW + slot, f"k{number}", f"did:{number}", 9, is_accepted=True)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < slots * 420_000


def test_those_who_may_write_on_a_kind_are_named():
    control = Book(
        delegate(OWNER, BOB, cmd="/job/schedule", pol=RENDER, meta={"alias": "gpu"}),
        delegate(OWNER, CAROL, cmd="/job/read", pol=RENDER),
        delegate(OWNER, DAN, cmd="/", pol=BUILD),
    ).control()
    assert writers(control, "render", principals.NOW) == {BOB.did: "gpu"}
    assert set(writers(control, "build", principals.NOW)) == {DAN.did}
    assert set(writers(control, CONTROL, principals.NOW)) == {BOB.did, DAN.did}
