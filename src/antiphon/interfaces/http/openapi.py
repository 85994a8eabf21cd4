"""The OpenAPI 3.1 document of `/v1`, made from the endpoints and the types that they name."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from antiphon.interfaces.http.endpoints import ENDPOINTS, MAX_LINK, SIGNED, Endpoint
from antiphon.sdk.http.access import roles_for
from antiphon.sdk.http.models import Problem

REF: Final = "#/components/schemas/{name}"
_PATH: Final = {
    "job": {"type": "string", "pattern": "^([0-9a-f]{1,64}|[0-7][0-9A-HJKMNP-TV-Z]{25})$"},
    "hook": {"type": "string", "minLength": 1, "maxLength": 200},
    "message": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "reason": {"type": "string", "pattern": "^[a-z_]+$"},
}
KEYED: Final = ("submit", "send")
"""What is done once for each `Idempotency-Key`."""
_EVENT: Final = {
    "type": "object",
    "description": "One event; `data` is JSON: a JobView, a JobEvent or an OutputPiece.",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": ["job", "record", "output"]},
        "data": {"type": "string"},
    },
    "required": ["event", "data"],
}
_IN_PATH: Final = re.compile(r"\{(\w+)\}")


def document() -> dict[str, Any]:
    """The whole document; always the same for the same code."""
    types = [Problem]
    for one in ENDPOINTS:
        types += [kind for kind in (one.answer, one.body) if kind and not isinstance(kind, str)]
    unique = list(dict.fromkeys(types))
    refs, schemas = msgspec.json.schema_components(unique, ref_template=REF)
    by_type = dict(zip(unique, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Antiphon",
            "version": "1",
            "description": "Jobs and everything else on a mesh, as one node sees it.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Endpoint, by_type: dict[Any, Any]) -> dict[str, Any]:
    params = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _PATH.get(name, {"type": "string"}),
        }
        for name in _IN_PATH.findall(one.path)
    ]
    for param in one.params:
        schema = param.schema
        if param.name == "state":
            schema = {"type": "array", "items": param.schema}
        params.append(
            {"name": param.name, "in": "query", "description": param.says, "schema": schema}
        )
    if one.name in KEYED:
        key = {"type": "string", "minLength": 1, "maxLength": 200}
        params.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    made: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.says,
        "description": _needs(one),
        "parameters": params,
        "responses": {
            str(one.status): {"description": "success", "content": _content(one.answer, by_type)},
            "default": {
                "description": "what is wrong",
                "content": {"application/problem+json": {"schema": by_type[Problem]}},
            },
        },
    }
    if one.under == SIGNED:
        made["security"] = []
    if one.linked:
        params.append(
            {
                "name": "link",
                "in": "query",
                "description": "A link to this job, instead of a token.",
                "schema": {"type": "string", "minLength": 1, "maxLength": MAX_LINK},
            }
        )
    if one.status == 201:  # noqa: PLR2004
        found = made["responses"]["201"]
        made["responses"]["200"] = {**found, "description": "it was done already"}
    if one.name == "output":
        params.append({"name": "Range", "in": "header", "schema": {"type": "string"}})
        made["responses"]["206"] = {**made["responses"]["200"], "description": "the range"}
    if one.name in ("job", "output", "proof"):
        made["responses"]["304"] = {"description": "it is as it was when you asked before"}
    if one.body is not None:
        made["requestBody"] = {"required": True, "content": _content(one.body, by_type)}
    return made


def _needs(one: Endpoint) -> str:
    if one.under == SIGNED:
        return "Needs no token: the request is signed with the webhook's secret."
    *others, last = roles_for(one.under)
    return f"Needs a token with the role {', '.join(f'`{role}`' for role in others)} or `{last}`."


def _content(what: Any, by_type: dict[Any, Any]) -> dict[str, Any]:
    if what == "application/json":
        return {what: {"schema": {}}}
    if what == "text/event-stream":
        return {what: {"schema": _EVENT}}
    if isinstance(what, str):
        return {what: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": by_type[what]}}
