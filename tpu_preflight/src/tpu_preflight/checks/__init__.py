"""The checks, a module each: ``check`` takes a `context.Context` and gives findings.

Which there are, in which order and for which subjects: the list in ``findings.toml``. How to add
one: the README's "Add a check".
"""
