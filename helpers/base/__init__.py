"""What every room builds on: errors, files, settings, and how text and pages are written."""

from helpers.base import errors, language

# The language needs errors of its own, so `errors` can't import what translates them.
errors.translator = language.translated
