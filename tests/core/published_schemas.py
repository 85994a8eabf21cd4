"""The published JSON Schemas, and as much of JSON Schema as it takes to hold values to them."""

import base64
import json
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs/reference/schemas"
TYPES = {"object": dict, "array": list | tuple, "string": str, "integer": int, "boolean": bool}
SAYS_NOTHING = {"$schema", "$id", "$defs", "title", "description", "default", "contentEncoding"}
SAYS_NOTHING |= {"contentMediaType"}


def published(name):
    return json.loads((FOLDER / f"{name}.schema.json").read_text())


def fits(value, schema, whole=None):
    """Whether a value is what a schema says. An unknown keyword is a KeyError."""
    whole = whole or schema

    def holds(word, rule):
        match word:
            case "$ref":
                return fits(value, whole["$defs"][rule.removeprefix("#/$defs/")], whole)
            case "anyOf":
                return any(fits(value, option, whole) for option in rule)
            case "properties":
                return all(fits(value[key], rule[key], whole) for key in value if key in rule)
            case "additionalProperties":
                known = schema.get("properties", {})
                return all(
                    rule is not False and fits(item, rule, whole)
                    for key, item in value.items()
                    if key not in known
                )
            case "propertyNames":
                return all(fits(key, rule, whole) for key in value)
            case "items":
                return all(fits(item, rule, whole) for item in value)
            case "contentSchema":
                return fits(json.loads(base64.b64decode(value)), rule, whole)
            case _:
                return CHECKS[word](value, rule)

    return all(
        not isinstance(value, ABOUT.get(word, object)) or holds(word, rule)
        for word, rule in schema.items()
        if word not in SAYS_NOTHING
    )


def is_of(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    whole = name == "integer" and isinstance(value, float) and value.is_integer()
    return whole or isinstance(value, TYPES[name])


ABOUT = {
    **dict.fromkeys(("required", "properties", "additionalProperties", "propertyNames"), dict),
    **dict.fromkeys(("items", "minItems", "maxItems"), list | tuple),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), str),
    **dict.fromkeys(("minimum", "maximum"), int | float),
}
CHECKS = {
    "type": is_of,
    "enum": lambda v, rule: v in rule,
    "required": lambda v, rule: set(rule) <= set(v),
    "minItems": lambda v, rule: len(v) >= rule,
    "maxItems": lambda v, rule: len(v) <= rule,
    "minLength": lambda v, rule: len(v) >= rule,
    "maxLength": lambda v, rule: len(v) <= rule,
    "minimum": lambda v, rule: v >= rule,
    "maximum": lambda v, rule: v <= rule,
    # ECMAScript's $ is the very end; Python's lets a line break pass.
    "pattern": lambda v, rule: re.search(rule[:-1] + r"\Z", v) is not None,
}
