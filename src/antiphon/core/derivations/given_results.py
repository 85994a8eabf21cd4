"""A manifest as a worker runs it: results of other jobs are inputs by content (spec §7.3)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import Result
from antiphon.core.manifest import BlobInput, Input, Manifest, ResultInput
from antiphon.core.record.ids import digest


def with_results(manifest: Manifest, results: Sequence[Result]) -> tuple[Manifest, dict[str, str]]:
    """The manifest with the results of an accepted offer as its inputs, and their texts.

    The texts are by digest; results that are not among them are stored beside the log.
    """
    if not results or manifest.inputs is UNSET:
        return manifest, {}
    left, inputs, texts = list(results), list[Input](), dict[str, str]()
    for one in manifest.inputs:
        if not isinstance(one, ResultInput):
            inputs.append(one)
            continue
        result = left.pop(0)
        if result.text is not None:
            content = result.text.encode()
            hash_, size = digest(content), len(content)
            texts[hash_] = result.text
        elif result.hash is not None and result.size is not None:
            hash_, size = result.hash, result.size
        else:
            raise TypeError(f"the reducer accepts no such result: {result}")
        inputs.append(BlobInput(algo="blake3", hash=hash_, size=size, name=one.name))
    return replace(manifest, inputs=tuple(inputs)), texts
