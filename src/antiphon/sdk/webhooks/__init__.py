"""Webhooks: signed requests from other systems, and requests to them (docs/do/webhooks.md)."""
