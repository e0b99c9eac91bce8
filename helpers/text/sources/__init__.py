"""Documents from files of any common kind, wherever they lie: one at a time, each with its place.

Python's own modules, pyarrow, ``datasets`` and fsspec do the reading; here is which of them, and
what an error says: the file, and the line or row in it.
"""

from helpers.text.sources.finding import find, told
from helpers.text.sources.source import Document, Source
