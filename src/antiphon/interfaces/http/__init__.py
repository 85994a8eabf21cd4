"""The HTTP interface of a node: probes, metrics and tempo, with a token (docs/reference/http.md).

Needs the extra `antiphon[http]`. It runs in the node's own event loop and ends with it.
"""
