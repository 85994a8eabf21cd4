"""Durations, for the SDK and for interfaces (`antiphon.runtime.values.durations`)."""

from antiphon.runtime.values.durations import FORMS, MAX_S, UNITS_S, seconds, span_s

__all__ = ["FORMS", "MAX_S", "UNITS_S", "seconds", "span_s"]
