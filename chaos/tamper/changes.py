"""The changes of `chaos tamper`: each yields what was done, and the bundle that results."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from antiphon.core.record import codec
from antiphon.core.record.verdict import Verdict
from chaos.tamper.sealed_jobs import SealedJobs

VERDICTS = [reason.value for reason in Verdict]


def encode_bundle(bundle: dict[str, Any]) -> bytes:
    """The file in its canonical form, whatever it says."""
    return codec.encode(bundle) + b"\n"


def decode_bundle(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    return found


def change_bytes(
    jobs: SealedJobs, chance: random.Random, count: int
) -> Iterator[tuple[str, bytes]]:
    """Random changes of bytes."""
    for _ in range(count):
        data = bytearray(jobs.bundle)
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
                yield f"flipped a bit of byte {at}", bytes(data)
            case 1:
                data[at] = (data[at] + chance.randrange(1, 256)) % 256
                yield f"changed byte {at}", bytes(data)
            case 2:
                del data[at : at + chance.randrange(1, 64)]
                yield f"cut out bytes at {at}", bytes(data)
            case _:
                data[at:at] = chance.randbytes(chance.randrange(1, 8))
                yield f"put bytes in at {at}", bytes(data)


def leave_out(jobs: SealedJobs) -> Iterator[tuple[str, bytes]]:
    """Each record left out, once; the two that matter most by name."""
    names = {jobs.revocation: "the revocation", jobs.expiry: "the expiry"}
    for at, record in enumerate(decode_bundle(jobs.bundle)["records"]):
        bundle = decode_bundle(jobs.bundle)
        del bundle["records"][at]
        name = names.get(record["seq"], f"record {record['seq']}")
        yield f"left out {name}", encode_bundle(bundle)


def insert_others(jobs: SealedJobs) -> Iterator[tuple[str, bytes]]:
    """Records of another job inserted, one by one and all at once; records doubled and swapped."""
    mine, theirs = decode_bundle(jobs.bundle), decode_bundle(jobs.other)
    known = {record["seq"] for record in mine["records"]}
    foreign = [record for record in theirs["records"] if record["seq"] not in known]
    for record in foreign:
        yield f"inserted record {record['seq']}", _with(mine, [*mine["records"], record])
    yield "inserted another job", _with(mine, [*mine["records"], *foreign])
    yield "named another job", encode_bundle({**mine, "name": theirs["name"]})
    yield "named another kind", encode_bundle({**mine, "kind": "chaos.other"})
    yield "showed another job's records", encode_bundle({**mine, "records": theirs["records"]})
    yield (
        "doubled a record",
        encode_bundle({**mine, "records": [*mine["records"], mine["records"][-1]]}),
    )
    yield (
        "doubled genesis",
        encode_bundle({**mine, "records": [mine["records"][0], *mine["records"]]}),
    )
    for at in range(1, len(mine["records"])):
        exchanged = [*mine["records"]]
        exchanged[at - 1 : at + 1] = reversed(exchanged[at - 1 : at + 1])
        yield f"exchanged two records at {at}", encode_bundle({**mine, "records": exchanged})
    yield "no records", encode_bundle({**mine, "records": []})


def _with(bundle: dict[str, Any], records: list[dict[str, Any]]) -> bytes:
    return encode_bundle({**bundle, "records": sorted(records, key=lambda record: record["seq"])})


def change_fields(
    jobs: SealedJobs, chance: random.Random, count: int
) -> Iterator[tuple[str, bytes]]:
    """Well-formed false statements: a record's verdict, place, time, subject or path."""
    for _ in range(count):
        bundle = decode_bundle(jobs.bundle)
        at = chance.randrange(len(bundle["records"]))
        record = bundle["records"][at]
        other = bundle["records"][at - 1]
        what = chance.choice(["verdict", "seq", "commit_ms", "leaf", "subject", "path", "swap"])
        match what:
            case "verdict":
                words = [word for word in VERDICTS if word != record["verdict"]]
                record["verdict"] = chance.choice(words)
            case "seq" | "commit_ms" | "leaf":
                record[what] += chance.choice([-1, 1, 2, 1000])
            case "subject":
                record["subject"] = other["subject"]
                if other["subject"] == record["subject"]:
                    record["subject"] += "x"
            case "path":
                _change_path(record["path"], chance)
            case _:
                record["path"], other["path"] = other["path"], record["path"]
        if encode_bundle(bundle) != jobs.bundle:
            yield f"changed the {what} of record {record['seq']}", encode_bundle(bundle)


def _change_path(path: list[str], chance: random.Random) -> None:
    match chance.randrange(3):
        case 0:
            path.pop()
        case 1:
            path.append("0" * 64)
        case _:
            path.reverse()


def change_seal(jobs: SealedJobs) -> Iterator[tuple[str, bytes]]:
    """Another op in place of the seal, and the seal with other values."""
    bundle = decode_bundle(jobs.bundle)
    text = bundle["seal"]["text"]
    for record in bundle["records"]:
        if "record" in record:  # of rejected ones there is only the digest
            yield "another record as the seal", encode_bundle({**bundle, "seal": record["record"]})
    for old, new in (('"size":', '"size":1'), ('"upto":', '"upto":1'), ('"prev":', '"prev":1')):
        changed = {"text": text.replace(old, new, 1)}
        yield f"the seal with another {old[1:-2]}", encode_bundle({**bundle, "seal": changed})


def all_changes(jobs: SealedJobs, *, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Every change, those with names first."""
    chance = random.Random(seed)
    yield from leave_out(jobs)
    yield from insert_others(jobs)
    yield from change_seal(jobs)
    yield from change_fields(jobs, chance, count // 2)
    yield from change_bytes(jobs, chance, count)
