"""Tempo policies as files: YAML as it stands, with an older form mapped (spec §11)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from antiphon.core.cost.rates import read_rates
from antiphon.core.tempo.policy import TempoPolicy, policy_hash, read_policy
from antiphon.errors import Malformed
from antiphon.sdk.manifests.strict_yaml import read_yaml

__all__ = [
    "TempoPolicy",
    "all_fields",
    "keeping_rates",
    "policy_hash",
    "policy_in",
    "policy_object",
    "with_rates",
]


def policy_in(text: str) -> TempoPolicy:
    """The policy in a file."""
    fields = read_yaml(text).value
    if not isinstance(fields, dict):
        raise Malformed(
            "a tempo policy is a mapping of names to values",
            reason="tempo",
            hint="begin with initial_bpm: 15",
        )
    return read_policy(fields)


def with_rates(policy: TempoPolicy, text: str) -> TempoPolicy:
    """The policy with the rates of a file of their own."""
    fields = read_yaml(text).value
    return replace(policy, rates=read_rates(fields if isinstance(fields, dict) else {}))


def keeping_rates(policy: TempoPolicy, before: TempoPolicy) -> TempoPolicy:
    """A policy with the rates of the one that it replaces, if it has none of its own."""
    return policy if policy.rates is not None else replace(policy, rates=before.rates)


def all_fields(what: Any) -> Any:
    """A struct as JSON, with the fields that have their defaults."""
    if isinstance(what, msgspec.Struct):
        return {name: all_fields(value) for name, value in msgspec.structs.asdict(what).items()}
    if isinstance(what, dict):
        return {name: all_fields(value) for name, value in what.items()}
    return [all_fields(one) for one in what] if isinstance(what, list | tuple) else what


def policy_object(policy: TempoPolicy) -> dict[str, Any]:
    """A policy as JSON; phases are given by their beats."""
    return {**all_fields(policy), "phases": all_fields(policy.beats)}
