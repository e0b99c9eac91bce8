"""What every room stands on: errors, files, settings, and how text and pages are written."""
