"""What the published JSON Schemas share: their dialect, and how patterns are written in it.

The modules of the closed types generate them; `scripts/schemas` writes the files.
"""

from __future__ import annotations

from typing import Any, Final

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def published(schema_id: str, schema: dict[str, Any]) -> dict[str, Any]:
    r"""A schema with its id, for readers that are not Python.

    Patterns are in ECMAScript's dialect: `$` for Python's `\Z`. Descriptions, which are docstrings,
    have no indentation; Python keeps it before 3.13.
    """
    plain: dict[str, Any] = _plain({"$schema": DIALECT, "$id": schema_id, **schema})
    return plain


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _text(key, item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def _text(key: str, item: Any) -> Any:
    match key, item:
        case "pattern", str():
            return item.replace(r"\Z", "$")
        case "description", str():
            return "\n".join(line.strip() for line in item.splitlines())
        case _:
            return _plain(item)
