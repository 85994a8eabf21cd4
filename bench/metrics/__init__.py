"""`bench metrics`: whether metrics say what the log says, and what metrics and traces cost."""
