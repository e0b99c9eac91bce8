"""Writing records: what is there is kept, what is missing is written, by processes or by Beam."""

from helpers.text.records.writing.folder import made_of, plan_of, write, write_all
