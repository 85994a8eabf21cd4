"""`chaos tamper`: a bundle that was meddled with is refused with a sentence, never with a crash.

Bytes are flipped, put in and cut out anywhere; records are left out, doubled, exchanged and slipped
in from another job under the same seal; paths, places, times and verdicts are changed and the file
is written anew in its proper form. Each trial is one change, and each must be refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from antiphon.core import codec
from antiphon.core.reasons import Reason
from antiphon.errors import AntiphonError
from antiphon.sdk.bundles import open_bundle
from chaos.tamper_scene import Told, tell

SEED = 20261115
VERDICTS = [reason.value for reason in Reason]

Change = Callable[[], bytes]


def written(bundle: dict[str, Any]) -> bytes:
    """The file in its proper form, whatever it says."""
    return codec.encode(bundle) + b"\n"


def opened(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    return found


def blind(told: Told, chance: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Changes of bytes, by someone who does not know what they mean."""
    for _ in range(count):
        data = bytearray(told.bundle)
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


def left_out(told: Told) -> Iterator[tuple[str, bytes]]:
    """Each record missing, once; the two that matter most by name."""
    names = {told.revocation: "the revocation", told.expiry: "the expiry"}
    for at, record in enumerate(opened(told.bundle)["records"]):
        bundle = opened(told.bundle)
        del bundle["records"][at]
        name = names.get(record["seq"], f"record {record['seq']}")
        yield f"left out {name}", written(bundle)


def slipped_in(told: Told) -> Iterator[tuple[str, bytes]]:
    """Records of another job, each once, all at once, and the other way round."""
    mine, theirs = opened(told.bundle), opened(told.other)
    known = {record["seq"] for record in mine["records"]}
    strangers = [record for record in theirs["records"] if record["seq"] not in known]
    for record in strangers:
        yield f"slipped in record {record['seq']}", _with(mine, [*mine["records"], record])
    yield "slipped in another job", _with(mine, [*mine["records"], *strangers])
    yield "named another job", written({**mine, "name": theirs["name"]})
    yield "named another kind", written({**mine, "kind": "chaos.other"})
    yield "showed another job's records", written({**mine, "records": theirs["records"]})
    yield "doubled a record", written({**mine, "records": [*mine["records"], mine["records"][-1]]})
    yield "doubled genesis", written({**mine, "records": [mine["records"][0], *mine["records"]]})
    for at in range(1, len(mine["records"])):
        exchanged = [*mine["records"]]
        exchanged[at - 1 : at + 1] = reversed(exchanged[at - 1 : at + 1])
        yield f"exchanged two records at {at}", written({**mine, "records": exchanged})
    yield "no records", written({**mine, "records": []})


def _with(bundle: dict[str, Any], records: list[dict[str, Any]]) -> bytes:
    return written({**bundle, "records": sorted(records, key=lambda record: record["seq"])})


def changed(told: Told, chance: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Well-formed lies about a record: its verdict, place, time, subject, path or bytes."""
    for _ in range(count):
        bundle = opened(told.bundle)
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
                _bend_path(record["path"], chance)
            case _:
                record["path"], other["path"] = other["path"], record["path"]
        if written(bundle) != told.bundle:
            yield f"changed the {what} of record {record['seq']}", written(bundle)


def _bend_path(path: list[str], chance: random.Random) -> None:
    match chance.randrange(3):
        case 0:
            path.pop()
        case 1:
            path.append("0" * 64)
        case _:
            path.reverse()


def about_the_seal(told: Told) -> Iterator[tuple[str, bytes]]:
    """Another op in the seal's place, and the seal with other words."""
    bundle = opened(told.bundle)
    text = bundle["seal"]["text"]
    for record in bundle["records"]:
        yield "another record as the seal", written({**bundle, "seal": record["record"]})
    for old, new in (('"size":', '"size":1'), ('"upto":', '"upto":1'), ('"prev":', '"prev":1')):
        bent = {"text": text.replace(old, new, 1)}
        yield f"the seal with another {old[1:-2]}", written({**bundle, "seal": bent})


def trials(told: Told, *, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Every change, the named ones first."""
    chance = random.Random(seed)
    yield from left_out(told)
    yield from slipped_in(told)
    yield from about_the_seal(told)
    yield from changed(told, chance, count // 2)
    yield from blind(told, chance, count)


def attempt(data: bytes, owner: str) -> str:
    """What became of one changed bundle: refused, accepted or crashed."""
    try:
        open_bundle(data, owner=owner)
    except AntiphonError as refusal:
        return "refused" if refusal.message else "crashed"
    except Exception as crash:  # noqa: BLE001 - that there is none is what is measured
        return f"crashed: {crash!r}"
    return "accepted"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos tamper")
    parser.add_argument("--trials", type=int, default=4000, help="blind changes; half as many lies")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    told = asyncio.run(tell())
    open_bundle(told.bundle, owner=told.owner)
    done = refused = crashed = 0
    for what, data in trials(told, count=200 if args.quick else args.trials, seed=args.seed):
        if data == told.bundle:
            continue
        done += 1
        ended = attempt(data, told.owner)
        refused += ended == "refused"
        crashed += ended.startswith("crashed")
        if ended != "refused":
            print(f"{ended}: {what}", file=sys.stderr)
    print(json.dumps({"trials": done, "refused": refused, "crashed": crashed}))
    return 0 if refused == done else 1
