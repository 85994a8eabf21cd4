"""`chaos restore`: a mesh is backed up under load, its host destroyed, and restored elsewhere."""
