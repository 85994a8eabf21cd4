"""The published schema of a proof takes what the reducer takes, and little else."""

import base64
import json

import pytest
from msgspec.structs import replace

from antiphon.core.cost.usage import Usage
from antiphon.core.proof import statement as proof_statement
from antiphon.core.record import codec
from antiphon.errors import Malformed
from tests.core.authors import ALICE
from tests.core.proof.test_statement import Proved, output
from tests.core.published_schemas import fits, published

SCHEMA = published("proof")
DIGESTS = proof_statement.Digests(blake3="ab" * 32, sha256="cd" * 32)
EVERYTHING = {
    "inputs": (proof_statement.Subject(name="data.csv", digest=DIGESTS),),
    "exit": -9,
    "runner": proof_statement.Runner(name="bash", version="5", platform="linux", digest=DIGESTS),
    "isolation": proof_statement.Isolation(level="sandbox", held=("network:none", "seccomp")),
    "environment": "ef" * 32,
    "policy_root": "sha256:" + "01" * 32,
    "usage": Usage(wall_ms=1, cpu_ms=0, max_rss_kb=7),
}


def test_the_schema_is_current_and_says_which_dialect_it_is():
    assert proof_statement.json_schema() == SCHEMA, "run scripts/schemas --write"
    assert SCHEMA["$schema"].endswith("draft/2020-12/schema")
    assert r"\Z" not in json.dumps(SCHEMA), "a Python pattern; JSON Schema has ECMAScript's"
    parts = [SCHEMA, *SCHEMA["$defs"].values()]
    assert all(part["additionalProperties"] is False for part in parts)


@pytest.mark.req("P8")
@pytest.mark.parametrize("fields", [{}, {"status": "failed"}, EVERYTHING], ids=len)
@pytest.mark.parametrize("outputs", [(), (output(), output("x", "out.txt"))], ids=len)
def test_it_takes_every_proof(fields, outputs):
    job = Proved()
    body = job.body(outputs=outputs)
    assert fits(proof_statement.to_json(job.envelope(body=body, **fields)), SCHEMA)


def bent(change):
    """A proof whose statement was changed."""
    envelope = Proved().envelope(**EVERYTHING)
    statement = json.loads(base64.b64decode(envelope.payload))
    change(statement)
    payload = base64.b64encode(codec.encode_checked(statement)).decode()
    return replace(envelope, payload=payload)


BENT = {
    "another predicate": lambda said: said.update(predicateType="urn:other"),
    "no subject": lambda said: said.update(subject=[]),
    "no worker": lambda said: said["predicate"].pop("worker"),
    "no job": lambda said: said["predicate"].pop("job"),
    "a prefixed job": lambda said: said["predicate"].update(job="blake3:" + "0" * 64),
    "an unknown field": lambda said: said["predicate"].update(more=1),
    "an unknown level": lambda said: said["predicate"]["isolation"].update(level="total"),
    "an unknown status": lambda said: said["predicate"].update(status="aborted"),
    "null for absent": lambda said: said["predicate"].update(exit=None),
    "empty for absent": lambda said: said["predicate"].update(inputs=[]),
    "a negative time": lambda said: said["predicate"]["usage"].update(wall_ms=-1),
    "a text for a number": lambda said: said["predicate"].update(exit="0"),
    "a long word": lambda said: said["predicate"].update(kind="k" * 256),
}


@pytest.mark.req("P8")
@pytest.mark.parametrize("change", BENT.values(), ids=BENT)
def test_it_refuses_the_statements_that_we_refuse(change):
    assert fits(proof_statement.to_json(bent(lambda _: None)), SCHEMA)
    envelope = bent(change)
    with pytest.raises(Malformed):
        proof_statement.open_envelope(envelope)
    assert not fits(proof_statement.to_json(envelope), SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"payloadType": "text/plain"},
        {"payload": "e30"},
        {"payload": "e30=\n"},
        {"signatures": []},
        {"signatures": [{"keyid": ALICE.did, "sig": "A" * 86 + "=="}] * 2},
        {"signatures": [{"keyid": "alice", "sig": "A" * 86 + "=="}]},
        {"signatures": [{"keyid": ALICE.did, "sig": "A" * 88}]},
        {"more": 1},
    ],
    ids=str,
)
def test_it_refuses_envelopes_in_another_form(change):
    plain = proof_statement.to_json(Proved().envelope())
    assert fits(plain, SCHEMA)
    assert not fits({**plain, **change}, SCHEMA)
