"""Deliberate bugs of pulse and reports: each must be noticed by the laws of the simulated beats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from antiphon.core.tempo import pulse_state
from antiphon.core.tempo.bars import bar_facts, bar_window
from antiphon.core.tempo.pulse_view import PulseView
from antiphon.runtime.tempo import pulse
from antiphon.runtime.tempo.pulse_lease import PulseLease
from simulator.patch import patched


class Mutant(Protocol):
    """A bug that is there while a block runs."""

    __name__: str

    def __call__(self) -> AbstractContextManager[None]:
        """Put it in."""


@contextmanager
def leads_after_its_lease() -> Iterator[None]:
    """A leader goes on until the engine says that another one leads."""
    with patched(PulseLease, "is_held", property(lambda self: self._entry is not None)):
        yield


@contextmanager
def changes_within_a_bar() -> Iterator[None]:
    """A leader changes the tempo as soon as it is asked to."""
    really_lead = pulse.Pulse._lead  # noqa: SLF001 - a bug is put in

    async def lead(self: Any, state: Any) -> None:
        now_ms = self._now_ms()
        policy = self._session.control.tempo
        changed = pulse_state.on_downbeat(
            state, policy, self.suggest(), state.meter.beat_at(now_ms).epoch_ms
        )
        self._state = changed
        await really_lead(self, changed)

    with patched(pulse.Pulse, "_lead", lead):
        yield


@contextmanager
def forgets_the_tempo() -> Iterator[None]:
    """Whoever takes over begins with the policy's tempo."""
    really_take = PulseLease.take

    async def take(self: PulseLease, beat_ms: int) -> None:
        await really_take(self, beat_ms)

    def begun(policy: Any, *_: Any, **__: Any) -> Any:
        return really_begun(policy)

    really_begun = pulse_state.begun
    with patched(PulseLease, "take", take), patched(pulse, "begun", begun):
        yield


@contextmanager
def any_term_is_followed() -> Iterator[None]:
    """A listener follows whichever leader it hears."""
    really_take = PulseView._take_leader  # noqa: SLF001

    def take(self: Any, heard: Any, policy: Any) -> Any:
        self._leader = None
        return really_take(self, heard, policy)

    with patched(PulseView, "_take_leader", take), leads_after_its_lease():
        yield


@contextmanager
def the_last_to_arrive_counts() -> Iterator[None]:
    """A report takes what it heard last for what was said last."""
    really_take = bar_facts.take_claim

    def take(bar: Any, author: str, fact: Any) -> Any:
        noted = really_take(bar, author, fact)
        if noted is bar_facts.Noted.COUNTED:
            row = bar.rows[author][fact.claim.agent_id, fact.claim.task_id]
            row.last = (fact.at, fact.claim.state)
        return noted

    with patched(bar_window, "take_claim", take):
        yield


@contextmanager
def late_claims_are_left_out() -> Iterator[None]:
    """A report that was made once stays as it is."""
    really_find = bar_window.BarWindows._bar_at  # noqa: SLF001

    def bar_at(self: Any, at_ms: int) -> Any:
        found = really_find(self, at_ms)
        return bar_facts.Noted.TOO_OLD if getattr(found, "is_closed", False) else found

    with patched(bar_window.BarWindows, "_bar_at", bar_at):
        yield


MUTANTS: Final[tuple[Mutant, ...]] = (
    leads_after_its_lease,
    changes_within_a_bar,
    forgets_the_tempo,
    any_term_is_followed,
    the_last_to_arrive_counts,
    late_claims_are_left_out,
)
