"""Benchmarks: ratios measured side by side in one run, never absolute numbers on their own."""
