"""Adaptive tempo: a PI controller that the pulse's leader asks once per bar (spec §11).

    error  = demand - strain              in -1..1, from one bar's load
    target = initial_bpm + KP·error + integral,   integral += KI·error per bar

*Demand* is work that waits while machines have room: then beats may be shorter. *Strain* is what
shows that beats are too short: overruns, broken promises, machines in full use.

While neither is felt, the *hints* of scores count: the target is the median of what running jobs
ask for.

The tempo moves by 1 bpm toward the target if the target differs by more than the hysteresis; on a
downbeat, at most once a minute, within the policy's limits. Where overruns gather in one phase of
the bar, a beat may move there instead. One thing changes at a time.

It settles. An integral with whole steps would swing for ever around a tempo between two of them,
so: errors within `DEAD_BAND` count as none; the integral stays near the tempo in force; a step down
that follows a step up sets a *ceiling*; a phase that took a beat gives none. So a load that stays
the same sees a bounded number of changes. All of this is forgotten when the load is another: when
the error is, though nothing has changed here.

Frozen, it changes nothing, and what it remembers stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from statistics import median_low
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from antiphon.core.tempo.messages import Suggestion
from antiphon.core.tempo.meter import MINUTE_MS, Meter
from antiphon.core.tempo.phases import PHASES, Phase, Phases

if TYPE_CHECKING:
    from antiphon.core.tempo.policy import TempoPolicy

STEP_BPM: Final = 1
KP: Final = 0.12
"""Of the initial tempo, for an error of 1. A little more than the usual hysteresis of 10 %: one bar
under full strain is answered on the next downbeat, and half of that is not."""
KI: Final = 0.04
"""Of the initial tempo, for each bar with an error of 1. A quarter of full strain leaves the
hysteresis after about ten bars (five minutes): slower than queues fill and drain within a bar, so
that the tempo follows the load and not its noise. Three times less than KP, as usual for a plant
that answers within one sample."""
DEAD_BAND: Final = 0.05
"""Errors up to this count as none, else the smallest one would drive the tempo to a limit."""
OTHER_LOAD: Final = 0.2
"""How far the error must be from that of the first bar after a change, for another load."""
STRAINED_RATE: Final = 0.2
"""Overruns or broken promises of a fifth are full strain; the alarms begin at half of that."""
ROOMY_USE: Final = 0.8
"""Machines in use up to this have room for more; all above is strain."""
UNKNOWN_USE: Final = 0.4
"""What counts where no machine reported its use: half of the room."""
FEWEST: Final = 5
"""Rates are taken of at least so many: one job that overran alone is not a rate of 100 %."""


class Freeze(StrEnum):
    """Why the tempo may not change."""

    NO_LEADER = "no_leader"
    ALARM = "alarm"
    OPERATOR = "operator"
    DISABLED = "disabled"
    """The policy has `adaptation.enable: false`."""


class Load(Struct, frozen=True, kw_only=True):
    """What one bar showed."""

    bpm: int
    """The tempo of that bar."""
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    """Jobs that wait for a worker, by role."""
    tasks: int = 0
    """Jobs that were worked on."""
    overruns: int = 0
    overruns_by_phase: Mapping[Phase, int] = field(default_factory=dict)
    promises_due: int = 0
    promises_broken: int = 0
    cpu: float | None = None
    """Used part of the processors, 0 to 1; None: nobody said."""
    gpu: float | None = None
    hints: tuple[int, ...] = ()
    """The tempi that the scores of running jobs ask for."""


class Memory(Struct, frozen=True, kw_only=True):
    """What the controller remembers between bars; a new leader begins with `begin`."""

    integral_bpm: float = 0.0
    direction: int = 0
    """Of the last change: 1 faster, -1 slower, 0 none yet."""
    ceiling_bpm: int | None = None
    took: frozenset[Phase] = frozenset()
    first_error: float | None = None
    """The error of the first bar since the last change."""


class Moment(Struct, frozen=True, kw_only=True):
    """What is in force, and the downbeat on which a change would begin."""

    meter: Meter
    phases: Phases
    at_ms: int
    changed_ms: int = 0
    """When tempo or phases last changed."""


def begin(policy: TempoPolicy, bpm: int) -> Memory:
    """What a new leader begins with: a tempo that others have adapted is not thrown away."""
    return Memory(integral_bpm=float(bpm - policy.initial_bpm))


def may_change(moment: Moment) -> bool:
    """Whether anything may change at all at this time: on a downbeat, a minute after the last."""
    is_downbeat = moment.meter.downbeat_before(moment.at_ms) == moment.at_ms
    return is_downbeat and moment.at_ms - moment.changed_ms >= MINUTE_MS


def error_of(load: Load) -> float:
    """How much too slow (above 0) or too fast (below 0) the beats are, -1 to 1."""
    error = _demand(load) - _strain(load)
    return 0.0 if abs(error) <= DEAD_BAND else error


def suggest(
    policy: TempoPolicy,
    memory: Memory,
    load: Load,
    moment: Moment,
    freeze: Freeze | None = None,
) -> tuple[Memory, Suggestion]:
    """What should change on the downbeat `moment.at_ms`, after a bar with this load."""
    if freeze is None and not policy.adaptation.enable:
        freeze = Freeze.DISABLED
    if freeze is not None:
        return memory, Suggestion(why=_FROZEN[freeze])
    if load.bpm != moment.meter.bpm:
        return memory, Suggestion(why="the last bar still had the tempo before")
    error = error_of(load)
    memory = _heard(memory, error)
    memory, target = _aimed(policy, memory, moment, error)
    if load.hints and not error:
        target = _hinted(policy, memory, load.hints)
    if not may_change(moment):
        return memory, Suggestion(why="a change has to wait: at most one a minute, on a downbeat")
    bpm, limits = moment.meter.bpm, policy.limits
    is_outside = not limits.min_bpm <= bpm <= limits.max_bpm
    is_far = abs(target - bpm) > bpm * policy.adaptation.hysteresis_pct / 100
    # The tempo is a whole number: a target closer than a step would only be passed.
    if is_outside or (is_far and abs(target - bpm) >= STEP_BPM):
        return _stepped(memory, moment, 1 if target > bpm else -1, load)
    return _moved(memory, moment, load)


def _demand(load: Load) -> float:
    """The part of the work that waits, in the role where it is worst, as far as there is room."""
    deepest = max(load.queue_depth.values(), default=0)
    if deepest <= 0:
        return 0.0
    waiting = deepest / (deepest + max(load.tasks, FEWEST))
    return waiting * max(0.0, 1 - _use(load) / ROOMY_USE)


def _strain(load: Load) -> float:
    crowded = max(0.0, _use(load) - ROOMY_USE) / (1 - ROOMY_USE)
    overrun = load.overruns / max(load.tasks, FEWEST) / STRAINED_RATE
    broken = load.promises_broken / max(load.promises_due, FEWEST) / STRAINED_RATE
    return min(1.0, max(crowded, overrun, broken))


def _use(load: Load) -> float:
    known = [use for use in (load.cpu, load.gpu) if use is not None]
    return min(max(known), 1.0) if known else UNKNOWN_USE


def _heard(memory: Memory, error: float) -> Memory:
    """Memory after a bar: what holds only for one load is forgotten under another."""
    if memory.first_error is None:
        return replace(memory, first_error=error)
    if abs(error - memory.first_error) <= OTHER_LOAD:
        return memory
    return Memory(integral_bpm=memory.integral_bpm, first_error=error)


def _aimed(
    policy: TempoPolicy, memory: Memory, moment: Moment, error: float
) -> tuple[Memory, float]:
    """The target. The integral stays near the tempo in force, so that it cannot wind up."""
    base, bpm, limits = policy.initial_bpm, moment.meter.bpm, policy.limits
    lead = bpm * policy.adaptation.hysteresis_pct / 100 + STEP_BPM
    lowest, highest = limits.min_bpm, limits.max_bpm
    if memory.ceiling_bpm is not None:
        highest = max(lowest, min(highest, memory.ceiling_bpm))
    integral = memory.integral_bpm + KI * base * error
    integral = min(
        max(integral, bpm - lead - base, lowest - base), bpm + lead - base, highest - base
    )
    target = min(max(base + KP * base * error + integral, lowest), highest)
    return replace(memory, integral_bpm=integral), target


def _hinted(policy: TempoPolicy, memory: Memory, hints: tuple[int, ...]) -> float:
    """What running jobs ask for, in the middle, as far as the policy and earlier bars allow it."""
    limits, ceiling = policy.limits, memory.ceiling_bpm
    highest = limits.max_bpm if ceiling is None else min(limits.max_bpm, ceiling)
    return float(max(min(median_low(hints), highest), limits.min_bpm))


def _stepped(
    memory: Memory, moment: Moment, direction: int, load: Load
) -> tuple[Memory, Suggestion]:
    bpm = moment.meter.bpm + direction * STEP_BPM
    ceiling = memory.ceiling_bpm
    is_turn = direction < 0 < memory.direction
    if is_turn or (ceiling is not None and bpm < ceiling):
        memory = replace(memory, ceiling_bpm=bpm)
    memory = replace(memory, direction=direction, first_error=None)
    return memory, Suggestion(tempo_bpm=bpm, why=_words(load, is_faster=direction > 0))


def _moved(memory: Memory, moment: Moment, load: Load) -> tuple[Memory, Suggestion]:
    """Move one beat to the phase with more than half of the overruns, from one that has none."""
    kept = Suggestion(why="the tempo fits the load")
    if load.overruns < FEWEST * STRAINED_RATE:
        return memory, kept
    beats, late = dict(moment.phases), load.overruns_by_phase
    short = max(PHASES, key=lambda phase: late.get(phase, 0))
    givers = [
        phase
        for phase in PHASES
        if phase != short and beats[phase] > 1 and not late.get(phase, 0)
        if phase not in memory.took
    ]
    if late.get(short, 0) * 2 <= load.overruns or not givers:
        return memory, kept
    giver = max(givers, key=lambda phase: beats[phase])
    beats[giver] -= 1
    beats[short] += 1
    memory = replace(memory, took=memory.took | {short}, first_error=None)
    why = f"{late[short]} of {load.overruns} overruns were in {short}, none in {giver}"
    return memory, Suggestion(phases=Phases(**beats), why=why)


def _words(load: Load, *, is_faster: bool) -> str:
    if load.hints and not error_of(load):
        return f"the scores of running jobs ask for {median_low(load.hints)} bpm"
    if is_faster:
        role, depth = max(load.queue_depth.items(), key=lambda one: one[1], default=("", 0))
        if not depth:
            return "the strain of earlier bars is over"
        return f"{depth} jobs wait{f' for {role}' if role else ''} and machines have room"
    causes = {
        f"{load.overruns} of {load.tasks} jobs overran": load.overruns / max(load.tasks, FEWEST),
        f"{load.promises_broken} of {load.promises_due} promises were broken": (
            load.promises_broken / max(load.promises_due, FEWEST)
        ),
        f"machines are in use to {_use(load):.0%}": max(0.0, _use(load) - ROOMY_USE),
    }
    worst = max(causes, key=lambda cause: causes[cause])
    return worst if causes[worst] > 0 else "fewer jobs wait than before"


_FROZEN: Final[Mapping[Freeze, str]] = {
    Freeze.NO_LEADER: "frozen: the pulse has no leader",
    Freeze.ALARM: "frozen: an alarm is raised",
    Freeze.OPERATOR: "frozen by the operator",
    Freeze.DISABLED: "the policy does not adapt the tempo (adaptation.enable)",
}
