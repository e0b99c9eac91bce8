"""What a preflight can be asked about: a file for each kind, and what they have in common."""
