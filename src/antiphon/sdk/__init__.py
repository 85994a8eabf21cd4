"""What a Python program imports: `Mesh`, `Task`, `JobHandle`."""
