"""Test support: the engine conformance suite, virtual time, the simulator, its mutants."""
