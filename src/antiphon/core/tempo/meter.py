"""Beats and bars: what follows from the time, a tempo and an anchor (spec §11).

    beat_ms    = round(60000 / bpm)
    beat_index = 1 + floor((now - anchor) / beat_ms) mod bar_len
    beat_epoch = anchor + beat_ms * floor((now - anchor) / beat_ms)

The anchor is a downbeat: the Unix epoch at first, and where the tempo changes, the downbeat of that
change. There is no count of bars or beats: everything is relative to now.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MINUTE_MS: Final = 60_000
DEFAULT_BPM: Final = 15
DEFAULT_BAR_LEN: Final = 8
SLOWEST_BPM, FASTEST_BPM = 1, 600
SHORTEST_BAR, LONGEST_BAR = 3, 64
"""A bar has at least one beat for each phase."""


class Beat(Struct, frozen=True):
    """One beat."""

    index: int
    """1 to the length of the bar."""
    epoch_ms: int
    """When it began."""

    @property
    def is_downbeat(self) -> bool:
        """Whether it is the first of its bar."""
        return self.index == 1


class Meter(Struct, frozen=True, kw_only=True):
    """A tempo, the length of a bar, and a downbeat to count from."""

    bpm: int = DEFAULT_BPM
    bar_len: int = DEFAULT_BAR_LEN
    anchor_ms: int = 0

    @property
    def beat_ms(self) -> int:
        """The length of a beat."""
        return round(MINUTE_MS / self.bpm)

    @property
    def bar_ms(self) -> int:
        """The length of a bar."""
        return self.beat_ms * self.bar_len

    def beat_at(self, now_ms: int) -> Beat:
        """The beat at a time; times before the anchor have beats, too."""
        count = (now_ms - self.anchor_ms) // self.beat_ms
        return Beat(1 + count % self.bar_len, self.anchor_ms + count * self.beat_ms)

    def next_beat(self, now_ms: int) -> Beat:
        """The first beat that begins after a time."""
        return self.beat_at(self.beat_at(now_ms).epoch_ms + self.beat_ms)

    def downbeat_before(self, now_ms: int) -> int:
        """When the bar at this time began."""
        return self.anchor_ms + (now_ms - self.anchor_ms) // self.bar_ms * self.bar_ms

    def downbeat_after(self, now_ms: int, bars: int = 1) -> int:
        """The downbeat that many bars after the one before; with 1, when this bar ends."""
        return self.downbeat_before(now_ms) + bars * self.bar_ms

    def beats_until(self, now_ms: int, target_ms: int) -> int:
        """How many beats a time is away, to the nearest; negative: ago, halves away from zero."""
        away_ms = target_ms - now_ms
        beats = (2 * abs(away_ms) + self.beat_ms) // (2 * self.beat_ms)
        return beats if away_ms >= 0 else -beats

    def beats_since(self, start_ms: int, now_ms: int) -> int:
        """Whole beats that have passed since a time."""
        return max(now_ms - start_ms, 0) // self.beat_ms
