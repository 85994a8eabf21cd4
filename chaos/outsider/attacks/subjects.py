"""Where the outsider may not write, read, subscribe or administer.

Most of it the server refuses; what needs a body goes to the gate, which leaves things out.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from chaos.network.raw_connection import QUIET_S
from chaos.outsider.attempt import (
    DENIED,
    Attempt,
    Outcome,
    fill_in,
    publish_attempt,
    subscribe_attempt,
)
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh

_GET: Final = "$JS.API.DIRECT.GET.<stream>"
_CREATE: Final = "$JS.API.CONSUMER.CREATE.<stream>"
_ADMIN: Final = "$JS.API.STREAM"

# --- writing ------------------------------------------------------------------------------------

WRITING: Final = [
    publish_attempt(f"write on {name}", subject)
    for name, subject in {
        "a job of the victim's kind": "ap.<m>.jobs.job.build.image.<id>",
        "a job of a secret kind": "ap.<m>.jobs.job.secret.plan.<id>",
        "high-priority calls of the victim's kind": "ap.<m>.jobs.0.build.image.<id>",
        "calls of the victim's kind": "ap.<m>.jobs.1.build.image.<id>",
        "waiting jobs of the victim's kind": "ap.<m>.jobs.wait.build.image.<id>",
        "the kind above its own": "ap.<m>.jobs.job.render.<id>",
        "a kind that begins like its own": "ap.<m>.jobs.job.renderer.video.<id>",
        "jobs under a wildcard for the kind": "ap.<m>.jobs.job.*.image.<id>",
        "everything at once": "ap.<m>.>",
        "a route": "ap.<m>.ctl.route.render",
        "the rules": "ap.<m>.ctl.rules",
        "the coordinator": "ap.<m>.ctl.coordinator",
        "the genesis": "ap.<m>.ctl.genesis",
        "a recovery": "ap.<m>.ctl.recover",
        "a readmission": "ap.<m>.ctl.readmit.x",
        "a revocation": "ap.<m>.ctl.revoke.<id>",
        "evidence": "ap.<m>.ctl.evidence.x",
        "a delegation": "ap.<m>.ctl.ucan.<id>",
        "delegations under a wildcard": "ap.<m>.ctl.ucan.*",
        "the roll": "apb.<m>.roll",
        "its own logins at the gate": "apb.<m>.gate.<me>.login",
        "control under a wildcard": "ap.<m>.ctl.*",
        "the seals": "ap.<m>.seal",
        "another mesh's log": "ap.aaaaaaaaaaaaaaaa.jobs.job.render.video.<id>",
        "live records of its own kind": "apr.<m>.jobs.job.render.video.<id>",
        "live control ops": "apr.<m>.ctl.rules",
        "the victim's inbox": "_I.<victim>.r.1",
        "its own inbox, in the server's place": "_I.<me>.r.1",
        "the server's own answers": "_R_.a.b",
        "the victim's reads at the gate": "apg.<m>.<victim>.get",
        "the victim's letters to the gate": "apg.<m>.<victim>.post",
        "the victim's logins at the gate": "apb.<m>.gate.<refresh>.login",
        "any other subject of the bus": "apb.<m>.pulse",
        "leases": "apl.<m>.key",
        "blobs": "apo.<m>.chunk",
    }.items()
]

# --- reading ------------------------------------------------------------------------------------


def _consumer(sort: str, subject: str, **config: Any) -> Attempt:
    body = {"stream_name": "<stream>", "config": {"ack_policy": "none", **config}}
    return publish_attempt(f"make a {sort} consumer", subject, json.dumps(body).encode())


_SERVER_READS: Final = [
    publish_attempt(f"read by {name}", subject, body)
    for name, subject, body in (
        ("sequence, in a body", _GET, b'{"seq":9}'),
        ("batch, in a body", _GET, b'{"seq":1,"batch":100}'),
        ("newest of all, in a body", _GET, b'{"multi_last":[">"]}'),
        ("subject of the victim's kind", _GET + ".ap.<m>.jobs.job.build.image.<id>", b""),
        ("wildcard for a kind", _GET + ".ap.<m>.jobs.job.*.*.>", b""),
        ("wildcard below its kind, too short", _GET + ".ap.<m>.jobs.job.render.>", b""),
        ("wildcard for the place", _GET + ".ap.<m>.*.*.render.video.>", b""),
        ("wildcard for all of a secret kind", _GET + ".ap.<m>.jobs.1.secret.plan.*", b""),
        ("wildcard for all places", _GET + ".ap.<m>.*.>", b""),
        ("wildcard for the mesh", _GET + ".ap.<m>.>", b""),
        ("wildcard for everything", _GET + ".>", b""),
        ("wildcard for the stream", "$JS.API.DIRECT.GET.*.ap.<m>.ctl.genesis", b""),
        ("message get", _ADMIN + ".MSG.GET.<stream>", b'{"seq":9}'),
        ("message get of a subject", _ADMIN + ".MSG.GET.<stream>", b'{"last_by_subj":">"}'),
        (
            "the victim's queue",
            "$JS.API.CONSUMER.MSG.NEXT.<stream>.build=image=normal",
            b'{"batch":9,"no_wait":true}',
        ),
        ("any queue", "$JS.API.CONSUMER.MSG.NEXT.<stream>.*", b'{"batch":9,"no_wait":true}'),
        ("the victim's way to the gate", "apg.<m>.<victim>.get", b'{"seq":9}'),
        ("the victim's way to the leader", "apg.<m>.<victim>.leader", b'{"seq":9}'),
    )
]
_CONSUMERS: Final = [
    _consumer("pull", _CREATE),
    _consumer("push", _CREATE, deliver_subject="_I.<me>.all"),
    _consumer("push into the log", _CREATE, deliver_subject="ap.<m>.jobs.job.build.image.x"),
    _consumer("named", _CREATE + ".spy", name="spy"),
    _consumer("filtered", _CREATE + ".spy.ap.<m>.jobs.job.render.>", filter_subject="ap.<m>.>"),
    _consumer("durable", "$JS.API.CONSUMER.DURABLE.CREATE.<stream>.spy", durable_name="spy"),
]


def _body_in_a_subject_read(name: str, question: dict[str, Any]) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        where = f"{fill_in(_GET, target)}.ap.{target.mesh}.ctl.genesis"
        answers = await target.connection.ask(where, json.dumps(question).encode())
        head = answers[0].headers if answers else None
        if head is None or head.get("Status") != "408":
            raise Breach(f"the server obeyed {question}")
        return Outcome("server", "408, a subject and a body contradict each other")

    return Attempt(f"read the genesis with {name} in the body", act)


_BODIES: Final = [
    _body_in_a_subject_read("a sequence", {"seq": 1}),
    _body_in_a_subject_read("a batch", {"seq": 1, "batch": 100}),
    _body_in_a_subject_read("another subject", {"last_by_subj": ">"}),
    _body_in_a_subject_read("many subjects", {"multi_last": [">"]}),
]


_WALKS: Final = [
    publish_attempt(f"walk the log by {name}", f"{_GET}.{subject}", b"")
    for name, subject in (
        ("its own kinds", "ap.<m>.jobs.job.render.>"),
        ("one kind", f"ap.<m>.jobs.job.{RENDER}.*"),
        ("calls", "ap.<m>.jobs.*.render.*.>"),
        ("control ops", "ap.<m>.ctl.>"),
        ("everything", "ap.<m>.>"),
    )
]


def _at_the_gate(name: str, verb: str, *questions: dict[str, Any]) -> Attempt:
    """Records out of scope are left out, however they are asked for."""

    async def act(target: TargetMesh) -> Outcome:
        where = f"apg.{target.mesh}.{target.connection.user}.{verb}"
        genesis = await target.connection.ask(where, b'{"seq":1}')
        if not genesis or not genesis[0].data:
            raise Breach("the gate shows it nothing at all: this shows nothing")
        secrets = [one.seq for one in await target.read_log() if ".secret." in one.subject]
        for question in questions:
            text = json.dumps(question).replace("<m>", target.mesh)
            body = text.replace('"SECRET"', str(secrets[0])).encode()
            answers = await target.connection.ask(where, body)
            await asyncio.sleep(QUIET_S / 4)
            if not answers:
                raise Breach(f"the gate did not answer {text}")
            for answer in answers:
                shown = (answer.headers or {}).get("Nats-Subject", "")
                if any(f".{kind}." in shown for kind in ("secret", "build")):
                    raise Breach(f"the gate showed {shown} to {text}")
        if leaked := target.leaked():
            raise Breach(f"it received {leaked}")
        return Outcome("gate", f"left out, {len(questions)} ways of asking")

    return Attempt(f"ask the gate for {name}", act)


_FILTERS: Final = (
    "ap.<m>.jobs.1.secret.>",
    "ap.<m>.*.*.build.image.>",
    "ap.<m>.>",
    ">",
    "*.*.>",
)
_GATE_READS: Final = [
    _at_the_gate("a secret record", "get", {"seq": "SECRET"}),
    _at_the_gate("a secret record from the leader", "leader", {"seq": "SECRET"}),
    _at_the_gate(
        "everything in pages",
        "get",
        {"seq": 1, "batch": 4096},
        {"seq": "SECRET", "batch": 10},
        {"seq": 1, "batch": 1000, "max_bytes": 2**62},
    ),
    _at_the_gate(
        "the next of other kinds",
        "get",
        *({"seq": 1, "next_by_subj": one} for one in _FILTERS),
        *({"seq": 1, "next_by_subj": one, "batch": 99} for one in _FILTERS),
    ),
    _at_the_gate(
        "the newest of other kinds",
        "get",
        *({"last_by_subj": one} for one in _FILTERS),
        {"multi_last": list(_FILTERS)},
        {"multi_last": ["ap.<m>.ctl.>", "ap.<m>.jobs.1.secret.plan.*"]},
    ),
    _at_the_gate(
        "other kinds from the leader",
        "leader",
        *({"last_by_subj": one} for one in _FILTERS),
        *({"seq": 1, "next_by_subj": one} for one in _FILTERS),
    ),
    _at_the_gate(
        "what makes no sense",
        "get",
        {},
        {"seq": -1},
        {"seq": 2**64},
        {"seq": 1, "last_by_subj": ">"},
        {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
        {"next_by_subj": "ap.<m>.>.x", "batch": 2**70},
        {"no_hdr": True, "seq": "SECRET"},
    ),
]


async def _answers_elsewhere(target: TargetMesh) -> Outcome:
    """The gate may publish anywhere, and the asker names the reply subject."""
    where = f"apg.{target.mesh}.{target.connection.user}.get"
    victim = target.victim.access()
    body = b'{"seq":1,"batch":99}'
    lane = f"ap.{target.mesh}.jobs.job.{BUILD}.{'1' * 64}"
    for reply_to in (
        f"_I.{victim.user}.r.1",
        f"$JS.API.STREAM.DELETE.{target.connection.stream}",
        lane,
        f"_I.{target.connection.user}",
        f"_I.{target.connection.user}x.y",
        "",
    ):
        await target.connection.publish(where, body, reply=reply_to)
    await target.connection.flush()
    await asyncio.sleep(QUIET_S)
    # Others go on writing meanwhile: calls are repeated, and the coordinator seals.
    if any(record.subject == lane for record in await target.read_log()):
        raise Breach("an answer of the gate's was stored in the log")
    return Outcome("gate", "answers only on the asker's own inbox")


READING: Final = [
    *_SERVER_READS,
    *_CONSUMERS,
    *_BODIES,
    *_WALKS,
    *_GATE_READS,
    Attempt("have the gate answer somewhere else", _answers_elsewhere),
]

# --- listening ----------------------------------------------------------------------------------


async def _permitted_subscriptions(target: TargetMesh) -> Outcome:
    """Everything that it may subscribe to, while others work."""
    mesh = target.mesh
    own = f"apr.{mesh}.jobs.job.render.*.>"
    heard = await target.connection.listen(own)
    for pattern in (
        f"apr.{mesh}.jobs.*.render.*.>",
        f"apr.{mesh}.jobs.wait.render.*.>",
        f"apr.{mesh}.ctl.>",
        f"apr.{mesh}.seal",
        f"apb.{mesh}.roll",
        f"apb.{mesh}.inbox.{target.connection.user}.>",
    ):
        if await target.connection.listen(pattern) is None:
            raise Breach(f"{pattern} is refused: this shows nothing")
    await target.connection.store(f"ap.{mesh}.jobs.job.{RENDER}.{'2' * 64}")
    await target.check_work()
    await asyncio.sleep(QUIET_S)
    if not heard:
        raise Breach("it hears nothing of its own kind either: this shows nothing")
    if leaked := target.leaked():
        raise Breach(f"it heard {leaked}")
    return Outcome("harmless", "nothing of the victim's job")


LISTENING: Final = [
    *(
        subscribe_attempt(f"listen on {name}", pattern, queue)
        for name, pattern, queue in (
            ("everything", ">", ""),
            ("everything, in a queue", ">", "gate"),
            ("every first word", "*.>", ""),
            ("the log", "ap.>", ""),
            ("all live records", "apr.>", ""),
            ("all live records of the mesh", "apr.<m>.>", ""),
            ("live jobs of the victim's kind", "apr.<m>.jobs.job.build.*.>", ""),
            ("live calls of a secret kind", "apr.<m>.jobs.1.secret.plan.*", ""),
            ("live jobs of any kind", "apr.<m>.jobs.job.*.*.>", ""),
            ("live jobs below its kind, too short", "apr.<m>.jobs.job.render.>", ""),
            ("live records of any place", "apr.<m>.*.*.render.*.>", ""),
            ("live jobs, in a queue", "apr.<m>.jobs.job.>", "spy"),
            ("all inboxes", "_I.>", ""),
            ("the victim's inbox", "_I.<victim>.>", ""),
            ("one inbox of each", "_I.*.*", ""),
            ("inboxes of other clients", "_INBOX.>", ""),
            ("the server's answers on their way", "_R_.>", ""),
            ("the bus", "apb.<m>.>", ""),
            ("all inboxes on the bus", "apb.<m>.inbox.>", ""),
            ("the victim's inbox on the bus", "apb.<m>.inbox.<victim>.>", ""),
            ("requests to the gate", "apb.<m>.gate.*.*", ""),
            ("logins of the victim", "apb.<m>.gate.<refresh>.login", ""),
            ("reads at the gate, in its place", "apg.<m>.*.get", "gate"),
            ("requests for administration", "$JS.API.>", ""),
            ("acknowledgements", "$JS.ACK.>", ""),
            ("advisories", "$JS.EVENT.>", ""),
            ("the system account", "$SYS.>", ""),
        )
    ),
    Attempt("listen on all that it may while others work", _permitted_subscriptions),
]

# --- administration -----------------------------------------------------------------------------

ADMINISTRATION: Final = [
    publish_attempt(name, subject, body)
    for name, subject, body in (
        ("purge the log", _ADMIN + ".PURGE.<stream>", b""),
        ("purge a kind", _ADMIN + ".PURGE.<stream>", b'{"filter":"ap.*.jobs.job.build.>"}'),
        ("delete the stream", _ADMIN + ".DELETE.<stream>", b""),
        ("update the stream", _ADMIN + ".UPDATE.<stream>", b'{"name":"x","max_msgs":1}'),
        ("create a stream", _ADMIN + ".CREATE.EVIL", b'{"name":"EVIL","subjects":["ap.>"]}'),
        ("ask for the stream's state", _ADMIN + ".INFO.<stream>", b""),
        ("list streams", _ADMIN + ".LIST", b""),
        ("list names", _ADMIN + ".NAMES", b""),
        ("delete a message", _ADMIN + ".MSG.DELETE.<stream>", b'{"seq":1}'),
        ("take a snapshot", _ADMIN + ".SNAPSHOT.<stream>", b'{"deliver_subject":"x"}'),
        ("restore a stream", _ADMIN + ".RESTORE.<stream>", b"{}"),
        ("make the leader step down", _ADMIN + ".LEADER.STEPDOWN.<stream>", b""),
        ("remove a copy", _ADMIN + ".PEER.REMOVE.<stream>", b'{"peer":"x"}'),
        ("delete the victim's queue", "$JS.API.CONSUMER.DELETE.<stream>.build=image=normal", b""),
        ("delete its own queue", "$JS.API.CONSUMER.DELETE.<stream>.render=video=normal", b""),
        ("pause the victim's queue", "$JS.API.CONSUMER.PAUSE.<stream>.build=image=normal", b"{}"),
        ("look at the victim's queue", "$JS.API.CONSUMER.INFO.<stream>.build=image=normal", b""),
        ("list queues", "$JS.API.CONSUMER.NAMES.<stream>", b""),
        ("purge an account", "$JS.API.ACCOUNT.PURGE.x", b""),
        ("ask for JetStream's state", "$JS.API.INFO", b""),
        ("make the meta leader step down", "$JS.API.META.LEADER.STEPDOWN", b""),
        ("remove a server", "$JS.API.SERVER.REMOVE", b"{}"),
        ("change an account", "$SYS.REQ.CLAIMS.UPDATE", b"x"),
        ("ask the server about itself", "$SYS.REQ.SERVER.PING", b""),
        ("ask who it is", "$SYS.REQ.USER.INFO", b""),
        ("write a key", "$KV.x.y", b""),
        ("write an object", "$O.x.C.y", b""),
    )
]

__all__ = ["ADMINISTRATION", "DENIED", "LISTENING", "READING", "WRITING"]
