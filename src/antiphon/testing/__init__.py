"""What users test with: a mesh in one test, virtual time, the suite of engines."""
