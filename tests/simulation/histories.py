"""Histories written down record by record, with the verdict that a broken system gave."""

import base64
import json

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import Payload, Policy, issue
from antiphon.ports import Record
from simulator.checks import laws, plain_record
from simulator.checks.law_state import Committed, LawState

MESH = "abcdefghijklmnop"
KIND, JOB = "build.fast", "a" * 64
SUBJECT = f"ap.{MESH}.jobs.job.{KIND}.{JOB}"
LEASE_MS = 10_000
AT_MS = 1_000_000
GIVEN = {"prev", "subject", "commit", "wall_ms", "signed", "verdict", "auth", "deps"}


class History:
    """One lane, and the control ops beside it."""

    def __init__(self):
        self.ledger = LawState()
        self.seq = 0
        self.tails = {}
        self.broken = []
        self.grants = 0

    @property
    def laws_broken(self):
        return {violation.law for violation in self.broken}

    def add(self, kind, at_ms, *, by="w", ok=True, honest=False, job=JOB, **fields):
        """Commit one op at `at_ms`; `fields` beside the body's own are those in `GIVEN`."""
        given = {name: fields.pop(name) for name in list(fields) if name in GIVEN}
        manifest = {"args": [], "command": ["@x"], "timeout": 0, **fields.pop("manifest", {})}
        body = {"kind": KIND, **fields}
        body |= {"manifest": manifest} if kind == "schedule" else {"job": job}
        if "answered" in body:
            said = plain_record.answered(MESH, by, body)
            self.ledger.signed.setdefault(by, set()).add(said)
        elif kind == "complete" and "proof" not in body:
            body["proof"] = self.proof(by, **body)
        home = plain_record._home(MESH, f"job.{kind}", body)
        if kind == "schedule":
            home = home[:-64] + job  # the laws know a job by its subject
        given.setdefault("verdict", Verdict.OK if ok else Verdict.FENCE)
        return self._commit(f"job.{kind}", at_ms, by, body, home, honest=honest, **given)

    def proof(self, worker, /, *, signer=None, **body):
        """A proof of a result, by its worker unless somebody else signed it."""
        proof = {"sig": "", "ended": "0" * 16}
        said = plain_record.stated(MESH, worker, {"kind": KIND, "job": JOB, **body, "proof": proof})
        self.ledger.signed.setdefault(signer or worker, set()).add(said)
        return proof

    def control(self, op_type, at_ms, by, verdict=Verdict.OK, /, **body):
        """Commit one control op."""
        home = plain_record._home(MESH, op_type, body)
        self._commit(op_type, at_ms, by, body, home, honest=False, verdict=verdict)

    def _commit(self, kind, at_ms, by, body, home, *, honest, verdict, **given):
        subject = given.get("subject", home)
        self.seq += 1
        op = {
            "type": kind,
            "author": by,
            "auth": given.get("auth", ()),
            "deps": given.get("deps", ()),
            "hlc": [given.get("wall_ms", AT_MS + at_ms), 0],
            "mesh": MESH,
            "prev": given.get("prev", self.tails.get(subject, 0)),
            "body": body,
        }
        raw = json.dumps(op).encode()
        record = Record(self.seq, given.get("commit", AT_MS + at_ms) * 1_000_000, subject, raw)
        if given.get("signed", True):
            self.ledger.signed.setdefault(by, set()).add(raw)
        fact = replace(plain_record.read(MESH, record), home=home)
        now = Committed(
            record=record,
            fact=fact,
            key=plain_record.key_of(record),
            verdict=verdict,
            tail=self.tails.get(subject, 0),
            is_honest=honest,
        )
        self.tails[subject] = self.seq
        self.broken += laws.commit(self.ledger, now)
        return fact.own_fence

    # --- authority --------------------------------------------------------------------------

    def found(self, owner, recovery):
        """A mesh on which every op needs a chain."""
        self.control("mesh.genesis", 0, owner.did, owner=owner.did, recovery=recovery.did, rules={})

    def delegate(self, giver, to, *, at_ms=1, by=None, verdict=Verdict.OK, **terms):
        """Put a delegation on the log; its cid."""
        token = self.token(giver, to, **terms)
        self.control("ucan.delegate", at_ms, (by or giver).did, verdict, token=token)
        return plain_record.read_claims(token).cid

    def token(self, giver, to, *, about, cmd="/job", pol=(), signed_by=None, **terms):
        """A delegation; times are seconds from the beginning."""
        self.grants += 1
        begins, ends, mesh = (terms.get(name) for name in ("begins", "ends", "mesh"))
        payload = Payload(
            iss=giver.did,
            aud=to.did,
            sub=about.did if about else None,
            cmd=cmd,
            pol=Policy(list(pol)),
            nonce=b"%012d" % self.grants,
            nbf=UNSET if begins is None else AT_MS // 1000 + begins,
            exp=None if ends is None else AT_MS // 1000 + ends,
            meta=UNSET if mesh is None else {"mesh": mesh},
        )
        made = issue(payload, (signed_by or giver).sign)
        if signed_by is None:
            self.ledger.signed.setdefault(giver.did, set()).add(made.raw)
        return base64.urlsafe_b64encode(made.raw).decode().rstrip("=")
