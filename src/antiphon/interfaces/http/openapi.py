"""The OpenAPI 3.1 document of `/v1`, made from the endpoints and the types that they name."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from antiphon.interfaces.http.endpoints import ENDPOINTS, Endpoint
from antiphon.sdk.http.models import Problem

REF: Final = "#/components/schemas/{name}"
_PATH: Final = {
    "job": {"type": "string", "pattern": "^([0-9a-f]{1,64}|[0-7][0-9A-HJKMNP-TV-Z]{25})$"},
    "reason": {"type": "string", "pattern": "^[a-z_]+$"},
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
    if one.name == "submit":
        key = {"type": "string", "minLength": 1, "maxLength": 200}
        params.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    made: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.says,
        "description": f"Needs a token with the role `{one.role}` or `all`.",
        "parameters": params,
        "responses": {
            str(one.status): {"description": "success", "content": _content(one.answer, by_type)},
            "default": {
                "description": "what is wrong",
                "content": {"application/problem+json": {"schema": by_type[Problem]}},
            },
        },
    }
    if one.status == 201:  # noqa: PLR2004
        found = made["responses"]["201"]
        made["responses"]["200"] = {**found, "description": "there was such a job already"}
    if one.name == "output":
        params.append({"name": "Range", "in": "header", "schema": {"type": "string"}})
        made["responses"]["206"] = {**made["responses"]["200"], "description": "the range"}
    if one.name in ("job", "output", "proof"):
        made["responses"]["304"] = {"description": "it is as it was when you asked before"}
    if one.body is not None:
        made["requestBody"] = {"required": True, "content": _content(one.body, by_type)}
    return made


def _content(what: Any, by_type: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(what, str):
        return {what: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": by_type[what]}}
