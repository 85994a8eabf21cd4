"""What jobs cost."""
