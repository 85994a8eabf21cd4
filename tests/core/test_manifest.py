"""What to run, and the id that follows from nothing else (spec §7.1)."""

import json
import random

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.manifest import author, core_bytes, job_id, seconds
from antiphon.core.record import codec
from antiphon.core.record.op import subject_of
from antiphon.errors import Malformed
from tests.core.published_schemas import fits, published
from tests.core.strategies import BRISK, manifests

SEED = {
    "command": ["/usr/bin/env", "bash", "-lc"],
    "args": ["echo", "hello"],
    "timeout": 30,
    "env": {"GREETING": "hello"},
}
SEED_BYTES = (
    b'{"args":["echo","hello"],"command":["/usr/bin/env","bash","-lc"],'
    b'"env":{"GREETING":"hello"},"timeout":30}'
)
SEED_ID = "298aaf4ca1e68cb951a3fae38e69dba73ce6a24d138f773601ff7d264e0d5fdc"
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
DIGEST = "0" * 64


@pytest.mark.req("P3")
def test_the_seeds_example_hashes_from_exactly_these_bytes():
    assert core_bytes(author(SEED)) == SEED_BYTES
    assert job_id(author(SEED)) == blake3(SEED_BYTES).hexdigest() == SEED_ID


@pytest.mark.req("P3")
@BRISK
@given(st.permutations(list(SEED)), st.booleans())
def test_field_order_does_not_matter(order, with_tuples):
    fields = {key: SEED[key] for key in order}
    if with_tuples:
        fields = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    assert job_id(author(fields)) == SEED_ID


@pytest.mark.req("P3")
def test_the_order_of_the_environment_does_not_matter():
    names = [f"NAME_{at}" for at in range(20)]
    shuffled = random.Random(1).sample(names, len(names))
    first, second = (dict.fromkeys(order, "x") for order in (names, shuffled))
    assert job_id(author({**SEED, "env": first})) == job_id(author({**SEED, "env": second}))


@pytest.mark.req("P2")
def test_omitted_arguments_are_hashed_as_an_empty_list():
    bare = {"command": ["true"], "timeout": 1}
    assert core_bytes(author(bare)) == b'{"args":[],"command":["true"],"timeout":1}'
    assert job_id(author(bare)) == job_id(author({**bare, "args": []}))


@pytest.mark.req("P4")
@BRISK
@given(manifests, st.sampled_from([ULID, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"]))
def test_a_ulid_changes_neither_the_id_nor_the_subject(plain, ulid):
    named = msgspec.structs.replace(plain, ulid=ulid)
    assert job_id(named) == job_id(msgspec.structs.replace(plain, ulid=msgspec.UNSET))
    op = JobSchedule(
        v=1, mesh="a" * 16, author="x", hlc=(0, 0), prev=0, deps=(), auth=(),
        body=ScheduleBody(kind="k", manifest=named),
    )  # fmt: skip
    assert subject_of(op).endswith("." + job_id(plain))
    assert ulid.lower() not in subject_of(op).lower()
    assert ulid.encode() in codec.encode(op)  # recorded, so that it can be resolved by reading


FULL = {
    **SEED,
    "cwd": "src",
    "inputs": [
        {"kind": "blobptr", "algo": "blake3", "hash": f"blake3:{DIGEST}", "size": 1, "name": "a"}
    ],
    "outputs": ["*.txt"],
    "secrets": ["token"],
    "network": True,
    "policy_root": f"sha256:{DIGEST}",
}


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["/usr/bin/env", "bash", "-c"]},
        {"command": ["/usr/bin/env", "bash", "-lc", "echo"], "args": ["hello"]},
        {"args": ["echo", "hello "]},
        {"args": ["hello", "echo"]},
        {"args": []},
        {"timeout": 31},
        {"env": {"GREETING": "Hello"}},
        {"env": {}},
        {"cwd": "src/"},
        {"inputs": []},
        {"inputs": [{"kind": "nonce", "nonce": "0" * 16}]},
        {"inputs": [{**FULL["inputs"][0], "hash": "blake3:" + "1" * 64}]},
        {"inputs": [{**FULL["inputs"][0], "size": 2}]},
        {"inputs": [{**FULL["inputs"][0], "name": "b"}]},
        {"inputs": FULL["inputs"] * 2},
        {"outputs": ["*"]},
        {"outputs": []},
        {"secrets": ["token", "key"]},
        {"network": False},
        {"policy_root": "sha256:" + "1" * 64},
    ],
    ids=str,
)
def test_every_other_field_changes_the_id(change):
    assert job_id(author({**FULL, **change})) != job_id(author(FULL))


@pytest.mark.parametrize(
    "field", ["env", "cwd", "inputs", "outputs", "secrets", "network", "policy_root"]
)
def test_leaving_an_optional_field_out_is_another_job_than_any_value_of_it(field):
    without = {key: value for key, value in FULL.items() if key != field}
    assert f'"{field}":'.encode() not in core_bytes(author(without))
    assert job_id(author(without)) != job_id(author(FULL))


@pytest.mark.req("P2")
@pytest.mark.parametrize(
    "written, whole",
    [("PT30S", 30), ("PT0S", 0), ("P0D", 0), ("PT5M", 300), ("PT1H", 3600), ("PT1H30M", 5400),
     ("PT1H1S", 3601), ("P1D", 86_400), ("P1DT1S", 86_401), ("P2DT3H4M5S", 183_845),
     ("PT90M", 5400), ("PT007S", 7)],
)  # fmt: skip
def test_durations_become_whole_seconds(written, whole):
    assert seconds(written) == whole
    assert job_id(author({**SEED, "timeout": written})) == job_id(
        author({**SEED, "timeout": whole})
    )


@pytest.mark.parametrize(
    "written",
    ["", "P", "PT", "P1DT", "30", "30s", "pt30s", "PT30", "PT-1S", "-PT1S", "PT1.5S", "PT1,5S",
     "PT1M1H", "P1Y", "P1M", "P1W", "PT1S ", "PT1S\n", " PT1S", "P1D1H", "PT١S", "PTS",
     "PT9999999999S"],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_a_hint(written):
    with pytest.raises(Malformed) as refusal:
        seconds(written)
    assert refusal.value.reason == "manifest"
    assert "PT30S" in refusal.value.hint


@pytest.mark.parametrize("digest", ["ab" * 32, "AB" * 32, "blake3:" + "ab" * 32])
def test_a_digest_may_be_written_bare_and_is_hashed_with_its_prefix(digest):
    made = author({**SEED, "inputs": [{"kind": "blobptr", "algo": "blake3", "hash": digest}]})
    assert b'"hash":"blake3:' + b"ab" * 32 in core_bytes(made)


@pytest.mark.req("P2")
def test_exactly_these_fields_and_three_of_them_are_always_there():
    named = dict.fromkeys(manifest.Manifest.__struct_fields__)
    assert list(named) == [
        "command", "args", "timeout", "env", "cwd", "inputs",
        "outputs", "secrets", "network", "policy_root", "ulid",
    ]  # fmt: skip
    everything = author({**FULL, "ulid": ULID})
    assert set(msgspec.to_builtins(everything)) == set(named)
    least = msgspec.to_builtins(author({"command": ["true"], "timeout": 0}))
    assert least == {"command": ("true",), "args": (), "timeout": 0}


def test_not_asking_for_the_network_has_one_form():
    assert job_id(author({**SEED, "network": False})) == job_id(author(SEED))


REFUSED = [
    {},
    {"command": ["true"]},
    {"timeout": 1},
    {**SEED, "comand": ["true"]},
    {**SEED, "kind": "render"},
    {**SEED, "nonce": "0" * 16},
    {**SEED, "command": []},
    {**SEED, "command": "true"},
    {**SEED, "command": [1]},
    {**SEED, "args": None},
    {**SEED, "args": "echo hello"},
    {**SEED, "args": ["\ud800"]},
    {**SEED, "timeout": -1},
    {**SEED, "timeout": 1.0},
    {**SEED, "timeout": True},
    {**SEED, "timeout": None},
    {**SEED, "timeout": 10**9},
    {**SEED, "timeout": "soon"},
    {**SEED, "env": {"1BAD": "x"}},
    {**SEED, "env": {"A=B": "x"}},
    {**SEED, "env": {"É": "x"}},
    {**SEED, "env": {"A": 1}},
    {**SEED, "env": {1: "x"}},
    {**SEED, "env": None},
    {**SEED, "cwd": ""},
    {**SEED, "inputs": "x"},
    {**SEED, "inputs": [{"kind": "blobptr", "algo": "sha256", "hash": DIGEST}]},
    {**SEED, "inputs": [{"kind": "blobptr", "algo": "blake3", "hash": "xyz"}]},
    {**SEED, "inputs": [{"kind": "blobptr", "algo": "blake3", "hash": DIGEST, "mode": 1}]},
    {**SEED, "inputs": [{"kind": "nonce", "nonce": "short"}]},
    {**SEED, "inputs": [{"kind": "file", "path": "x"}]},
    {**SEED, "outputs": "*.txt"},
    {**SEED, "outputs": [""]},
    {**SEED, "outputs": ["x"] * 257},
    {**SEED, "secrets": ["../key"]},
    {**SEED, "secrets": {"token": "hunter2"}},
    {**SEED, "network": "yes"},
    {**SEED, "policy_root": DIGEST},
    {**SEED, "ulid": "01arz3ndektsv4rrffq69g5fav"},
    {**SEED, "ulid": "8ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
    {**SEED, "ulid": "01ARZ3NDEKTSV4RRFFQ69G5FAV\n"},
    {b"command": ["true"], "timeout": 1},
]


def difference(fields):
    """What a case changes of the seed's example, for its name."""
    changed = {key: value for key, value in fields.items() if SEED.get(key) != value}
    return str(changed).encode("ascii", "replace").decode()


@pytest.mark.req("P2")
@pytest.mark.parametrize("fields", REFUSED, ids=difference)
def test_what_does_not_fit_the_closed_schema_is_refused(fields):
    with pytest.raises(Malformed):
        author(fields)


def test_authoring_leaves_what_the_person_wrote_alone():
    fields = {**SEED, "timeout": "PT30S", "inputs": [{"kind": "nonce", "nonce": "0" * 16}]}
    before = msgspec.json.encode(fields)
    author(fields)
    assert msgspec.json.encode(fields) == before


@pytest.mark.parametrize(
    "word, handler", [("@render.video", "render.video"), ("@", ""), ("bash", None), ("a@b", None)]
)
def test_a_command_that_begins_with_an_at_sign_names_a_handler(word, handler):
    assert author({"command": [word, "x"], "timeout": 0}).handler == handler


@BRISK
@given(manifests)
def test_the_id_is_the_blake3_of_the_bytes_without_the_ulid(plain):
    fields = msgspec.to_builtins(plain)
    fields.pop("ulid", None)
    again = author(fields)
    assert job_id(plain) == job_id(again) == blake3(codec.encode_checked(fields)).hexdigest()
    assert manifest.core_bytes(again) == codec.encode(again)


# --- the published schema ---------------------------------------------------------------------

SCHEMA = published("manifest")


@pytest.mark.req("P2")
def test_the_published_schema_is_current_and_says_which_dialect_it_is():
    assert manifest.json_schema() == SCHEMA, "run scripts/schemas --write"
    assert SCHEMA["$schema"].endswith("draft/2020-12/schema")
    assert SCHEMA["additionalProperties"] is False
    assert set(SCHEMA["properties"]) == set(manifest.Manifest.__struct_fields__)
    assert r"\Z" not in json.dumps(SCHEMA), "a Python pattern; JSON Schema has ECMAScript's"
    assert all("description" in field for field in SCHEMA["properties"].values())


@pytest.mark.req("P2")
def test_policy_and_inputs_are_recommended_where_a_manifest_is_written_and_never_missed():
    fields = SCHEMA["properties"]
    recommended = {name for name in fields if fields[name]["description"].startswith("Recommended")}
    assert recommended == {"policy_root", "inputs"}
    bare = {"command": ["true"], "timeout": 1}
    assert fits(bare, SCHEMA)
    assert not recommended & json.loads(core_bytes(author(bare))).keys()


@pytest.mark.req("P2")
@pytest.mark.parametrize(
    "fields",
    [
        SEED,
        FULL,
        {"command": ["true"], "timeout": 0},
        {**SEED, "timeout": "PT1H30M"},
        {**SEED, "timeout": "P1D"},
        {**SEED, "timeout": manifest.MAX_TIMEOUT_S},
        {**SEED, "ulid": ULID},
        {**SEED, "env": {}},
        {**SEED, "inputs": [{"kind": "nonce", "nonce": "0" * 16}]},
        {**SEED, "inputs": [{"kind": "blobptr", "algo": "blake3", "hash": "AB" * 32}]},
    ],
    ids=difference,
)
def test_the_schema_takes_what_can_be_authored(fields):
    author(fields)
    assert fits(fields, SCHEMA)


# No JSON, or in JSON Schema's eyes a whole number.
BEYOND_A_SCHEMA = (b"command", {1: "x"}, ["\ud800"], 1.0)


@pytest.mark.req("P2")
@pytest.mark.parametrize(
    "fields",
    [
        fields
        for fields in REFUSED
        if not any(
            type(part) is type(beyond) and part == beyond
            for part in (*fields, *fields.values())
            for beyond in BEYOND_A_SCHEMA
        )
    ]
    + [{**SEED, "timeout": word} for word in ("P", "PT", "P1DT", "PT5", "P1W", "PT30S\n")]
    + [{**SEED, "command": ["x"] * (manifest.MAX_WORDS + 1)}],
    ids=lambda fields: difference(fields)[:80],
)
def test_the_schema_refuses_what_authoring_refuses(fields):
    with pytest.raises(Malformed):
        author(fields)
    assert not fits(fields, SCHEMA)


@BRISK
@given(manifests)
def test_the_schema_takes_every_canonical_manifest(plain):
    assert fits(json.loads(codec.encode(plain)), SCHEMA)
