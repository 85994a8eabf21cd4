"""Deliberate bugs, each a patch that is switched on around a run and off again.

    rules      of what may happen to a job, and of the log beneath it
    authority  of who may do what
    memory     of documents
    outbox     of what waited on a machine without a connection
    locks      of locks, and of those who hold them
    services   of what services do for members
    questions  of who answers people's questions, and of how jobs go on with it
    steps      of what runs store, and of how workers use it
    runtime    of what workers and full nodes do, whatever the rules say

`MUTANTS` is the whole list; `command` hunts them. They live here and nowhere
else: production code has no hooks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from simulator.mutants import (
    authority,
    locks,
    memory,
    outbox,
    questions,
    rules,
    runtime,
    services,
    steps,
)

Mutant = Callable[[], AbstractContextManager[None]]

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.__name__: mutant
    for mutant in (
        *rules.MUTANTS,
        *authority.MUTANTS,
        *runtime.MUTANTS,
        *services.MUTANTS,
        *memory.MUTANTS,
        *outbox.MUTANTS,
        *locks.MUTANTS,
        *steps.MUTANTS,
        *questions.MUTANTS,
    )
}
ABOUT_DOCUMENTS: Final = frozenset(mutant.__name__ for mutant in memory.MUTANTS)
"""Mutants that show only where somebody writes documents."""
ABOUT_OUTBOXES: Final = frozenset(mutant.__name__ for mutant in outbox.MUTANTS)
"""Mutants that show only where somebody writes through an outbox."""
ABOUT_LOCKS: Final = frozenset(mutant.__name__ for mutant in locks.MUTANTS)
"""Mutants that show only where somebody takes locks."""
ABOUT_STEPS: Final = frozenset(
    mutant.__name__ for mutant in steps.MUTANTS if mutant is not steps.calls_unstored
)
"""Mutants that show only where handlers take steps."""
ABOUT_CALLS: Final = frozenset({"calls_unread", "calls_unstored"})
"""Mutants that show only where model calls are audited."""
ABOUT_QUESTIONS: Final = frozenset(mutant.__name__ for mutant in questions.MUTANTS)
"""Mutants that show only where jobs ask people."""
ABOUT_BURSTS: Final = frozenset({"rest_of_group_unsent"})
"""Mutants that show only where jobs are submitted together."""
ABOUT_CHAINS: Final = frozenset(mutant.__name__ for mutant in authority.MUTANTS) | {
    "first_verdicts_kept",
    "readers_unasked",
    "workers_unasked",
    "asked_too_late",
}
"""Mutants of what only chained worlds have."""
PROVOKED_BY: Final[dict[str, tuple[str, ...]]] = {
    "no_fence_check": ("stale_fence",),
    "subject_unchecked": ("wrong_subject",),
    "expiry_by_local_time": ("early_expire",),
    "routes_unread": ("control",),
    "pauses_unread": ("control",),
    "cooldown_skipped": ("ambush", "pause"),
    "start_by_ignored": ("claim_late",),
    "delays_unread": ("early_offer",),
    "delays_by_local_time": ("early_offer",),
    "quorum_of_one": ("false_resolve",),
    "leases_without_bound": ("overreach",),
    "tenures_without_end": ("cling",),
    "proofs_unread": ("false_witness",),
    "calls_unread": ("false_account",),
    "calls_unstored": ("crash",),
    "seals_unread": ("false_seal",),
    "revocation_ignored": ("revocation",),
    "first_verdicts_kept": ("last_call", "storm"),
    "quarantine_ends_no_lease": ("quarantine",),
    "authors_clock_only": ("back_date",),
    "commit_clock_only": ("second_by_second",),
    "expiry_a_second_late": ("second_by_second",),
    "any_audience": ("borrow",),
    "any_root": ("self_made",),
    "any_kind": ("trespass",),
    "anyone_revokes": ("revoke_others",),
    "forged_delegations": ("forge",),
    "anyone_expires": ("early_expire",),
    "early_ack": ("crash",),
    "no_compare_and_set": ("replay",),
    "attempts_uncounted": ("crash",),
    "slots_uncounted": ("outage",),
    "plain_ends_unread": ("crash", "outage"),
    "second_life": ("second_life",),
    "stolen_calls_unheeded": ("unquenchable",),
    "first_page_only": ("bury",),
    "ticks_doubled": ("crash",),
    "turn_results_mixed": ("outage",),
    "torn_turn_believed": ("storm", "outage"),
    "rest_of_group_unsent": ("storm", "outage"),
    "locks_by_one_clock": ("step",),
    "holders_never_stop": ("cut_off", "half_open"),
    "readers_unasked": ("wait_for_others",),
    "workers_unasked": ("wait_for_others",),
    "asked_too_late": ("wait_for_others",),
    "calendars_endless": ("far_plan",),
    "repeats_accepted": ("wait_for_others",),
    "anyone_stores": ("step_of_others",),
    "old_fences_store": ("step_out_of_turn",),
    "numbers_unread": ("step_out_of_turn",),
    "stored_steps_unread": ("crash",),
    "unanswered_is_stored": ("outage", "cut_off"),
    "streams_begin_anew": ("crash",),
    "unanswered_parts_dropped": ("outage", "cut_off", "storm"),
    "askers_answer": ("own_question",),
    "questions_run": ("false_answer",),
    "answers_unread": ("false_answer",),
    "answers_unsigned": ("false_answer",),
    "questions_used_up": ("leave_questions",),
    "asked_anew": ("crash",),
    "forms_unsearched": ("storm", "outage"),
    "forms_unnoted": ("crash", "storm"),
    "unanswered_is_held": ("storm", "outage"),
    "unsent_is_forgotten": ("outage",),
}
"""What puts the very rule to the test that a mutant breaks: in a quick hunt it comes often."""
