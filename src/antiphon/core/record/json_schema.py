"""What the published JSON Schemas share: their dialect, and how patterns are written in it.

The modules of the closed types generate them; `scripts/schemas` writes the files.
"""

from __future__ import annotations

from typing import Any, Final

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def published(schema_id: str, schema: dict[str, Any]) -> dict[str, Any]:
    r"""A schema with its id, and patterns in ECMAScript's dialect: `$` for Python's `\Z`."""
    plain: dict[str, Any] = _for_ecmascript({"$schema": DIALECT, "$id": schema_id, **schema})
    return plain


def _for_ecmascript(value: Any) -> Any:
    match value:
        case dict():
            return {
                key: item.replace(r"\Z", "$")
                if key == "pattern" and isinstance(item, str)
                else _for_ecmascript(item)
                for key, item in value.items()
            }
        case list():
            return [_for_ecmascript(item) for item in value]
        case _:
            return value
