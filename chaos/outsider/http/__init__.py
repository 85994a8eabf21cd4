"""What the outsider tries at HTTP doors: `doors` opens them, `routes` and `parties` attack."""
