"""The checks that a preflight makes, a file each."""
