"""Values of documents: JSON in the record, or an artifact where it is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antiphon.core.families.memory.ops import MAX_INLINE_LENGTH, Inline, Stored
from antiphon.core.record.codec import canonical_json, parse_json
from antiphon.core.record.ids import name_of_key
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.store import Artifacts

NAME: Final = "document.json"
MEDIA_TYPE: Final = "application/json"


async def keep(value: object, artifacts: Artifacts) -> Inline | Stored:
    """A value as a put carries it; a large one is stored first."""
    text = canonical_json(value)
    if len(text) <= MAX_INLINE_LENGTH:
        return Inline(text=text)
    data = text.encode()
    if len(data) > artifacts.value_bytes:
        raise Malformed(
            f"the value has {len(data):,} bytes; at most {artifacts.value_bytes:,} are allowed",
            reason="size",
            hint="store it with mesh.artifacts.keep(path), and put its digest into the document",
        )
    kept = await artifacts.keep_bytes(data, NAME, media_type=MEDIA_TYPE)
    return Stored(hash=kept.hash, size=kept.size)


async def read(value: Inline | Stored | None, artifacts: Artifacts, *, space: str, key: str) -> Any:
    """The value itself; None where there is none."""
    if value is None:
        return None
    if isinstance(value, Inline):
        return parse_json(value.text)
    where = (space, name_of_key(key))
    return parse_json(await artifacts.read(value.hash, job=where, max_bytes=artifacts.value_bytes))
