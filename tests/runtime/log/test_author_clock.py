"""An author whose machine's clock is wrong: told in words, and back as soon as it is right."""

import random

import pytest

from antiphon.core.clock.hlc import Stretch
from antiphon.errors import Corrupt, Unavailable
from antiphon.runtime.identity.key_files import FileMark, SeedKeyring
from antiphon.runtime.log.author import Author, NoMark

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DRIFT_MS = 2_000
START_MS = 1_800_000_000_000


class Machine:
    """Two clocks: one that can be set, one that cannot."""

    def __init__(self) -> None:
        self.true_ms = START_MS
        self.off_ms = 0

    def now_ms(self) -> int:
        return self.true_ms + self.off_ms

    def boot_s(self) -> float:
        return (self.true_ms - START_MS) / 1000


def author_on(machine, mark=None):
    key = SeedKeyring(b"k" * 32)
    return Author("m" * 16, key, machine, max_drift_ms=DRIFT_MS, mark=mark or NoMark())


def write(author, machine):
    """Stamp an op and hear from the log when it was stored."""
    sent_s, at = machine.boot_s(), author.tick()
    machine.true_ms += 2
    author.mesh_time.told(machine.true_ms, at.wall_ms, sent_boot_s=sent_s, max_drift_ms=DRIFT_MS)
    return at


def is_borne(at, machine):
    return at.wall_ms <= machine.true_ms + DRIFT_MS


@pytest.mark.parametrize("ahead_ms", [10_000, HOUR_MS, 30 * DAY_MS])
def test_a_clock_that_was_far_ahead_does_not_hold_its_key_up_once_it_is_right(ahead_ms):
    machine = Machine()
    author = author_on(machine)
    assert is_borne(write(author, machine), machine)
    machine.true_ms += 60_000  # what was known of the mesh's time is no longer believed
    machine.off_ms = ahead_ms
    assert not is_borne(write(author, machine), machine)
    machine.off_ms = 0
    assert is_borne(write(author, machine), machine)


def test_the_same_holds_over_a_restart(tmp_path):
    machine = Machine()
    machine.off_ms = 10 * DAY_MS
    stamps = [write(author_on(machine, FileMark(tmp_path / "key.mark")), machine)]
    machine.off_ms = 0
    stamps.append(write(author_on(machine, FileMark(tmp_path / "key.mark")), machine))
    assert is_borne(stamps[1], machine)
    machine.true_ms = stamps[0].wall_ms
    stamps.append(write(author_on(machine, FileMark(tmp_path / "key.mark")), machine))
    assert is_borne(stamps[2], machine)
    assert stamps[2] > stamps[0], "what was used up is stepped over when its time has come"


def test_nothing_is_signed_while_the_clock_is_known_to_be_ahead_and_the_words_say_why():
    machine = Machine()
    author = author_on(machine)
    write(author, machine)
    machine.off_ms = 3 * HOUR_MS + 90_000
    with pytest.raises(Unavailable, match="clock is 3 h 1 min ahead of the mesh's") as refused:
        author.tick()
    assert "timedatectl" in refused.value.hint
    machine.off_ms = 0
    assert is_borne(write(author, machine), machine)


def test_tries_with_a_clock_that_stays_ahead_become_rare():
    machine = Machine()
    author = author_on(machine)
    machine.off_ms, signed = HOUR_MS, 0
    for _ in range(24 * 60):
        machine.true_ms += 60_000
        try:
            write(author, machine)
        except Unavailable:
            continue
        signed += 1
    assert 100 <= signed <= 160
    machine.off_ms = 0
    assert is_borne(write(author, machine), machine)


def test_a_clock_that_goes_back_does_not_take_the_stamps_back():
    machine = Machine()
    author = author_on(machine)
    before = write(author, machine)
    machine.off_ms = -HOUR_MS
    author.mesh_time.saw(machine.true_ms, max_drift_ms=DRIFT_MS)
    assert author.tick() > before, "or what it holds could not be completed"
    assert "clock is 1 h 0 min behind the mesh's" in author.mesh_time.fault(DRIFT_MS)


@pytest.mark.parametrize("seed", range(8))
def test_no_stamp_is_signed_twice_whatever_the_clock_does(tmp_path, seed):
    chance, machine = random.Random(seed), Machine()
    file = FileMark(tmp_path / "key.mark")
    author, seen = author_on(machine, file), set()
    for _ in range(250):
        dice = chance.random()
        machine.true_ms += round(10 ** chance.uniform(0, 4))
        if dice < 0.2:
            machine.off_ms = round(10 ** chance.uniform(2, 8)) * chance.choice((-1, 1))
        elif dice < 0.3:
            machine.off_ms = 0
        elif dice < 0.4:
            if chance.random() < 0.5:
                author.settle()
            author = author_on(machine, file)
        elif dice < 0.5:
            author.observe((machine.true_ms + chance.randrange(DRIFT_MS), 0))
        try:
            at = write(author, machine)
        except Unavailable:
            continue
        assert at not in seen
        seen.add(at)
    assert len(seen) > 50


class FullDisk(NoMark):
    """A mark of ten days ahead that was left behind, on a disk that takes nothing more for now."""

    is_full = True
    spent = (Stretch(0, START_MS), Stretch(START_MS + 10 * DAY_MS, START_MS + 11 * DAY_MS))

    def load(self):
        return START_MS

    def load_spent(self):
        return self.spent

    def store(self, wall_ms, spent=()):
        if self.is_full:
            raise OSError("no space left on device")


def test_what_could_not_be_written_down_frees_nothing():
    machine, disk = Machine(), FullDisk()
    author = author_on(machine, disk)
    machine.off_ms = 20 * DAY_MS
    for _ in range(2):
        machine.true_ms += 10
        with pytest.raises(OSError, match="no space"):
            author.tick()
    disk.is_full, machine.off_ms = False, 10 * DAY_MS + HOUR_MS
    assert author.tick().wall_ms > disk.spent[-1].to_ms


def test_a_mark_file_of_an_earlier_version_is_read_and_a_broken_one_is_named(tmp_path):
    (tmp_path / "old.mark").write_text("1700000000000\n")
    old = FileMark(tmp_path / "old.mark")
    assert (old.load(), old.load_spent()) == (1_700_000_000_000, ())
    old.store(5, (Stretch(1, 2), Stretch(4, 5)))
    assert (old.load(), old.load_spent()) == (5, ((1, 2), (4, 5)))
    for broken in ("", "x\n", "5\n1\n", "5\n1 y\n"):
        (tmp_path / "old.mark").write_text(broken)
        with pytest.raises(Corrupt):
            old.load()
