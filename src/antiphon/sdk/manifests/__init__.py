"""Manifests that people write as YAML or JSON, and the errors they get."""
