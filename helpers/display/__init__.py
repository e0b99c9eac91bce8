"""What a notebook shows: expected errors, figures with a text alternative, dials."""
