"""What the course's ways with text of every length bring, measured beside the usual ways."""
