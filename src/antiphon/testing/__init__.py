"""What tests stand on: an engine's conformance suite, virtual time, the simulator, its mutants."""
