"""`antiphon doctor`, and its checks: each a small function that says what it found."""
