"""How the features of rows B1 to B28 are taken out: beats."""

import re
from typing import Any

from tests.breaks.replacement import (
    Break,
    around,
    becomes,
    calls,
    does_nothing,
    gives,
    result_with,
    with_,
)

TEMPO = "antiphon.core.tempo"
PULSE = "antiphon.runtime.tempo.pulse"
REVERB = "antiphon.runtime.tempo.reverb"
HELP = "antiphon.runtime.tempo.help_threads:HelpThread"
BEATS = "antiphon.runtime.worker.runs.run_beats"
WORK = "antiphon.runtime.worker.runs.run_work"
EPOCH = "1970-01-01T00:00:00.000Z"


def other_bar(old: Any, self: Any, now_ms: int) -> Any:
    """Beats that are counted from another moment."""
    return old(self, now_ms + self.beat_ms)


def _newest(history: Any) -> Any:
    policy = history._policies[-1].policy
    return policy.meter, policy.beats


def keeps_the_tempo(state: Any, *_: Any) -> Any:
    """Nothing changes on a downbeat."""
    return state


def goes_where_it_is_told(state: Any, _policy: Any, target: int, downbeat_ms: int) -> Any:
    """A tempo that takes any step at any time."""
    from msgspec.structs import replace

    return replace(state, bpm=target, anchor_ms=downbeat_ms, adapted_ms=downbeat_ms)


def changes_anywhere(old: Any, self: Any, last: Any, heard: Any) -> Any:
    """No change of the meter is wrong."""
    return ""


async def heeds_no_promise(old: Any, run: Any, spent: Any, *more: Any) -> Any:
    """What was promised for the case of a failure is forgotten."""
    spent.on_fail = ""
    return await old(run, spent, *more)


def free(rates: Any, kind: str, **_: Any) -> Any:
    """A job that cost nothing."""
    from antiphon.core.cost.job_cost import Priced

    return Priced(nano=0, unmeasured=())


BREAKS = {
    "B1": (
        Break(f"{PULSE}:beat_frame", result_with(hlc=f"{EPOCH}+0"), "frames have no true HLC"),
        Break(f"{PULSE}:beat_frame", result_with(deadline_at=EPOCH), "frames say no true deadline"),
        Break(f"{PULSE}:beat_frame", result_with(downbeat=False), "no frame is a downbeat"),
    ),
    "B2": (
        Break(
            "antiphon.runtime.worker.runs.status_sender:StatusSender._send",
            does_nothing,
            "workers say nothing about their jobs",
        ),
        Break(f"{BEATS}:RunBeats._waits_for", does_nothing, "nobody says what it waits for"),
        Break(
            "antiphon.sdk.tempo.namespace:hlc_text", gives(f"{EPOCH}+0"), "a status has no true HLC"
        ),
    ),
    "B3": (
        Break(f"{HELP}._broken", does_nothing, "a promise that is not kept keeps its thread open"),
        Break(
            "antiphon.runtime.tempo.help_threads:HelpAsked.promise",
            with_(fail_after_beats=1_000),
            "a promise does not say when its thread closes",
        ),
        Break(
            "antiphon.runtime.tempo.help_threads:HelpAsked.promise",
            with_(confidence=1.0),
            "every promise is certain",
        ),
        Break(
            "antiphon.runtime.tempo.help_threads:HelpAsked.promise",
            with_(on_fail=""),
            "a promise does not say what to do without the help",
        ),
        Break(f"{WORK}:after_wait", around(heeds_no_promise), "what a promise names does not run"),
        Break(f"{HELP}._is_better", gives(True), "the last promise counts, not the most certain"),
    ),
    "B4": (
        Break(f"{REVERB}:Reverb._put", does_nothing, "no bar is reported"),
        Break(f"{REVERB}:Reverb._note_talk", does_nothing, "reports count no promises"),
        Break(f"{REVERB}:_is_cut", gives(False), "reports count no overruns"),
        Break(f"{REVERB}:_role", gives("all"), "reports count queues without their roles"),
    ),
    "B5": (
        Break(
            f"{TEMPO}.addresses:_OLD",
            becomes(re.compile("(?!)")),
            "the old suffix is not read",
        ),
        Break(
            f"{TEMPO}.messages:upgraded",
            calls(lambda fields: (dict(fields), "")),
            "old fields are not mapped",
        ),
    ),
    "B6": (
        Break(f"{TEMPO}.meter:Meter.beat_at", around(other_bar), "beats are counted differently"),
    ),
    "B7": (
        Break(
            "antiphon.runtime.tempo.pulse_lease:PulseLease.is_held", gives(True), "every node leads"
        ),
        Break(
            "antiphon.runtime.tempo.beat_clock:BeatClock._may_keep_time",
            gives(True),
            "anyone's beats are followed",
        ),
    ),
    "B8": (
        Break(
            f"{TEMPO}.pulse_view:PulseView._follow_median",
            does_nothing,
            "without a leader the beats of others are not heard",
        ),
    ),
    "B9": (
        Break(
            f"{TEMPO}.bars.bar_window:BarWindows._mark_from",
            does_nothing,
            "what was said during a partition changes no report",
        ),
        Break(
            "antiphon.runtime.tempo.reverb:Reverb._fold",
            does_nothing,
            "reports stay as they were before the partition healed",
        ),
    ),
    "B10": (
        Break(
            f"{TEMPO}.pulse_view:PulseView._change_fault",
            around(changes_anywhere),
            "a tempo that changes off a downbeat is followed",
        ),
        Break(f"{TEMPO}.pulse_view:policy_hash", gives("sha256:0"), "policies look all the same"),
        Break(f"{PULSE}:on_downbeat", calls(keeps_the_tempo), "a leader keeps its old policy"),
    ),
    "B11": (
        Break(
            f"{TEMPO}.score:Score.phrase",
            calls(lambda self, _: self.phases),
            "retries do not shrink",
        ),
        Break(f"{BEATS}:phrase_of", gives(None), "a score has no phrase"),
        Break(f"{WORK}:_fallback", gives(None), "escalations do nothing"),
    ),
    "B12": (
        Break(f"{BEATS}:RunBeats._cut", does_nothing, "a phase goes on beyond its beats"),
        Break(f"{WORK}:marked", calls(lambda ran, _: ran), "a coarse result does not say so"),
    ),
    "B13": (
        Break(f"{HELP}._nobody", does_nothing, "a promise may come after the end of the bar"),
        Break(
            f"{BEATS}:RunBeats._spent",
            calls(lambda _self, spent: spent),
            "an exhausted wait escalates nothing",
        ),
        Break(f"{BEATS}:RunBeats.emit", does_nothing, "nobody is told what a score emits"),
        Break(
            "antiphon.runtime.worker.runs.escalation_writer:EscalationWriter.put",
            does_nothing,
            "what a score emits is not on the log",
        ),
        Break(
            f"{BEATS}:capped_waits", calls(lambda budget, _: budget), "a budget's caps are ignored"
        ),
        Break("antiphon.core.policy.phrase_run:WaitUse.left_ms", gives(10**9), "waits have no end"),
    ),
    "B14": (
        Break(
            f"{BEATS}:RunBeats.lease_ms",
            calls(lambda _self, wanted_ms: wanted_ms),
            "leases end anywhere",
        ),
        Break(
            "antiphon.core.policy.phrase_run:PhraseRun.lease_ms",
            calls(lambda _self, _now, *, wanted_ms, **_: wanted_ms),
            "leases end anywhere",
        ),
        Break(
            "antiphon.sdk.locks.namespace:Locks._until_boundary",
            calls(lambda self, _which: self._hold_time("edit")),
            "locks in beats end anywhere",
        ),
        Break(
            "antiphon.core.policy.locks.lock_time:_boundary",
            around(lambda old, *given: old(*given) + 1),
            "locks in beats end anywhere",
        ),
        Break(f"{BEATS}:RunBeats.beats_left", gives(0), "renewals do not say the beats left"),
    ),
    "B15": (
        Break(
            "antiphon.runtime.worker.runs.checkpoint_saver:CheckpointSaver._save",
            gives(False),
            "checkpoints are not stored",
        ),
        Break(
            "antiphon.runtime.worker.runs.checkpoint_saver:CheckpointSaver._pause_s",
            gives(0.0),
            "checkpoints are stored more than once a beat",
        ),
    ),
    "B16": (
        Break(f"{REVERB}:Reverb._frozen_by", gives(None), "the tempo changes during incidents"),
        Break(f"{REVERB}:Reverb.suggestion", gives(None), "the tempo does not adapt"),
        Break(f"{TEMPO}.pulse_state:STEP_BPM", becomes(10), "the tempo changes in large steps"),
    ),
    "B17": (
        Break(
            f"{TEMPO}.pulse_state:_adapted",
            calls(goes_where_it_is_told),
            "the tempo leaves its limits",
        ),
        Break(f"{TEMPO}.policy:policy_fault", gives(None), "limits that contradict are accepted"),
    ),
    "B18": (
        Break(
            f"{TEMPO}.tempo_history:TempoHistory.in_force",
            around(lambda _, self, __: _newest(self)),
            "what has happened gets the beats of today's policy",
        ),
        Break(
            "antiphon.runtime.tempo.tempo_record:TempoRecord._note",
            does_nothing,
            "what a leader changed is forgotten",
        ),
        Break(
            f"{TEMPO}.meter:Meter.beat_at",
            around(lambda old, self, _: old(self, 0)),
            "every event has the same beat",
        ),
        Break(
            "antiphon.core.history.story:hlc_text", gives(f"{EPOCH}+0"), "events have no true HLC"
        ),
    ),
    "B19": (
        Break(f"{TEMPO}.bars.alarms:silent_jobs", gives(()), "silence raises no alarm"),
        Break(f"{REVERB}:Reverb._judge", does_nothing, "no alarm is raised"),
    ),
    "B20": (
        Break("antiphon.core.bar_tokens.bar_count:BarCount.since", gives(0), "tokens never end"),
        Break(
            "antiphon.core.bar_tokens.bar_token:_granted",
            calls(lambda _control, _chain, _command, wanted, _now: wanted),
            "a token's project and role are not compared with the delegation",
        ),
        Break(
            "antiphon.runtime.log.acting:fault_as",
            gives(None),
            "what a node writes for a party is judged by the node's own right",
        ),
    ),
    "B21": (
        Break(
            "antiphon.core.policy.budget_watch:BudgetWatch.look", gives(None), "budgets end nothing"
        ),
        Break("antiphon.core.cost.job_cost:price", calls(free), "nothing costs anything"),
        Break(
            "antiphon.runtime.worker.runs.job_run:JobRun.cost", gives(None), "proofs say no cost"
        ),
    ),
    "B22": (
        Break(
            f"{TEMPO}.bars.bar_window:kpis",
            around(lambda old, tally: dict.fromkeys(old(tally), 0.0)),
            "reports have no true key figures",
        ),
    ),
    "B23": (
        Break(
            f"{TEMPO}.addresses:Address.begins_ms",
            calls(lambda _self, _meter, _phases, now_ms: now_ms),
            "an address in the future is now",
        ),
        Break(f"{TEMPO}.addresses:Address.includes", gives(True), "an address in the past is all"),
    ),
    "B24": (
        Break(
            "antiphon.interfaces.http.prometheus_text:_pulse",
            gives(()),
            "there are no metrics of the pulse",
        ),
        Break(
            "antiphon.interfaces.http.prometheus_text:_reverb",
            gives(()),
            "there are no metrics of the reverb",
        ),
        Break(
            "antiphon.interfaces.http.application:ProbeRoutes.ready",
            around(lambda old, self, request: self.health(request)),
            "a node is always ready",
        ),
    ),
    "B25": (
        Break(f"{TEMPO}.pulse_state:policy_hash", gives("sha256:0"), "frames name no policy"),
        Break(
            "antiphon.core.families.mesh.table:policy_fault", gives("wrong"), "no policy is taken"
        ),
        Break(f"{REVERB}:Reverb._emits", gives(True), "emit_bar_reports: false is ignored"),
    ),
    "B26": (
        Break(
            "antiphon.sdk.tempo.tempo_watch:subjects_of",
            around(lambda old, topic: old(topic)[:1]),
            "a project is one kind, without those below it",
        ),
        Break(
            "antiphon.sdk.tempo.tempo_watch:TempoWatch.listen", does_nothing, "topics are not heard"
        ),
        Break(f"{REVERB}:Reverb._publish", does_nothing, "reports are not published"),
    ),
    "B27": (Break(f"{REVERB}:is_ingest_open", gives(True), "batches come in on every beat"),),
    "B28": (
        Break(
            f"{TEMPO}.time_text:hlc_text",
            around(lambda old, at: old((at[0], 0))),
            "the counter is lost",
        ),
        Break(
            f"{TEMPO}.pulse_state:hlc_text",
            around(lambda old, at: old((at[0], 0))),
            "frames lose the counter",
        ),
    ),
}
