"""A mesh over HTTP: for programs that reach no server of the mesh, only a node's HTTP interface.

`HttpEngine` is the program's side; `LogService` answers it, beside a node. Every request is signed
with the program's own key (`core/bus/http_request.py`). Needs the packages of `antiphon[http]`.
"""

from __future__ import annotations

from antiphon.engines.http.engine import HttpEngine
from antiphon.engines.http.log_service import LogService

__all__ = ["HttpEngine", "LogService"]
