"""What several commands share: their options, and what they do and print alike."""
