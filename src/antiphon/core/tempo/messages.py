"""What pulse, workers and helpers tell each other on the bus (spec §11).

Fields have the names of the relative form: no message has a count of bars. `upgraded` and
`upgraded_frame` map what arrives in the older form, which had `bar` and `beat`. The
purposes and sizes of the signed messages are in `antiphon.runtime.tempo.tempo_messages`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from antiphon.core.record.op import Count
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phase, Phases
from antiphon.core.tempo.policy import BarLen, Bpm
from antiphon.core.tempo.time_text import parse_time, time_text

TimeText = Annotated[str, Meta(max_length=40)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Thread = Annotated[str, Meta(pattern=r"^[0-9a-z]{8,64}\Z")]
Note = Annotated[str, Meta(max_length=512)]
BeatCount = Annotated[int, Meta(ge=0, le=1_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
TaskState = Literal["planning", "executing", "waiting", "review", "done", "failed"]


class _Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all of them share."""


class BeatFrame(_Message, frozen=True):
    """The pulse: one beat, with everything that follows from it."""

    cluster_id: Name
    """The mesh's id."""
    tempo_bpm: Bpm
    beat_ms: Annotated[int, Meta(ge=1, le=60_000)]
    bar_len_beats: BarLen
    beat_index: Annotated[int, Meta(ge=1, le=64)]
    beat_epoch: TimeText
    """When the beat began."""
    downbeat: bool
    phase: Phase
    hlc: TimeText
    policy_hash: Annotated[str, Meta(max_length=80)]
    deadline_at: TimeText
    """When the beat ends, the same for everybody."""
    phases: Phases | None = None
    """The beats of each phase, if the adaptation moved them away from the policy's."""
    revision: Count = 0
    """The leader's term: the revision with which it took its lease. 0: sent without a leader."""

    @property
    def meter(self) -> Meter:
        """The meter that it was made with; its bar's downbeat is the anchor."""
        epoch_ms = parse_time(self.beat_epoch)
        anchor_ms = epoch_ms - (self.beat_index - 1) * self.beat_ms
        return Meter(bpm=self.tempo_bpm, bar_len=self.bar_len_beats, anchor_ms=anchor_ms)


class StatusClaim(_Message, frozen=True):
    """What an agent says about its work, on every beat and every change."""

    agent_id: Name
    """The node that signs it, or `NODE/AGENT`."""
    task_id: Name
    """`KIND/JOB`, or a name of the agent's own."""
    beat_index: Annotated[int, Meta(ge=1, le=64)]
    state: TaskState
    hlc: TimeText
    wait_for: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    beats_left: BeatCount = 0
    progress: Share = 0.0
    notes: Note = ""
    cpu: Share | None = None
    """How much of its machine's processors is in use, where it knows."""
    gpu: Share | None = None


class HelpRequest(_Message, frozen=True, tag_field="type", tag="request"):
    """Asks whoever works on a kind for help with a job."""

    thread_id: Thread
    task_id: Name
    about: Annotated[str, Meta(max_length=16 * 1024)]
    beats: BeatCount
    """How long the asker waits at most."""


class HelpPromise(_Message, frozen=True, tag_field="type", tag="promise"):
    """Promises help within a number of beats."""

    thread_id: Thread
    promise_beats: BeatCount
    fail_after_beats: BeatCount
    """At least `promise_beats`: when the thread closes by itself."""
    confidence: Share = 1.0
    on_fail: Annotated[str, Meta(max_length=128)] = ""
    """What the asker should do then, such as the name of a fallback."""

    def __post_init__(self) -> None:
        """A thread is not closed before its promise is due."""
        if self.fail_after_beats < self.promise_beats:
            raise ValueError("fail_after_beats is below promise_beats")


class HelpAnswer(_Message, frozen=True, tag_field="type", tag="answer"):
    """The help itself."""

    thread_id: Thread
    answer: Annotated[str, Meta(max_length=48 * 1024)]


Talk = HelpRequest | HelpPromise | HelpAnswer


class Suggestion(_Message, frozen=True):
    """What the adaptation would change."""

    tempo_bpm: Bpm | None = None
    phases: Phases | None = None
    why: Note = ""


class BarReport(_Message, frozen=True):
    """What happened between two downbeats."""

    cluster_id: Name
    window_start: TimeText
    window_end: TimeText
    tempo_bpm: Bpm
    counts: dict[str, int] = {}
    """Tasks by their last state in the window."""
    overruns: int = 0
    promises_due: int = 0
    promises_broken: int = 0
    queue_depth: dict[str, int] = {}
    """Jobs that nobody has claimed, by role (the first part of a kind)."""
    utilisation: dict[str, float] = {}
    """`cpu` and `gpu`, from 0 to 1, as far as known."""
    tempo_changes: int = 0
    suggested: Suggestion | None = None
    kpis: dict[str, float | None] = {}
    claims_late: int = 0
    """Claims that came after the window had ended; they are included."""


def upgraded(fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """A claim without the deprecated `bar` and `beat`, and a warning if it had one of them."""
    had = [name for name in ("bar", "beat") if name in fields]
    if not had:
        return fields, ""
    plain = {name: value for name, value in fields.items() if name not in had}
    if "beat" in fields:
        plain.setdefault("beat_index", fields["beat"])
    verb = "is" if len(had) == 1 else "are"
    words = (
        f"{' and '.join(had)} {verb} deprecated: send beat_index, the place of a beat in its bar"
    )
    return plain, words


def upgraded_frame(fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The same for a frame: its beat began one length before the end that it names."""
    plain, warning = upgraded(fields)
    ends, beat_ms = plain.get("deadline_at"), plain.get("beat_ms")
    if warning and isinstance(ends, str) and isinstance(beat_ms, int):
        plain.setdefault("downbeat", plain.get("beat_index") == 1)
        plain.setdefault("beat_epoch", time_text(max(parse_time(ends) - beat_ms, 0)))
    return plain, warning
