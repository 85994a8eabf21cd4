"""`antiphon backup` and `antiphon restore`: a mesh in a folder, and back."""
