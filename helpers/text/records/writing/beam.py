"""A plan of records, carried out by Apache Beam: the same bytes, from any number of machines.

Beam is in no environment of the course's own: it holds other packages back.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text.records.format import Manifest
from helpers.text.records.plan import Plan, Source, Sums
from helpers.text.records.writing.folder import (
    check_documents,
    found,
    has_documents,
    join,
    prepare_folders,
)
from helpers.text.records.writing.workers import Worker

SUMS = ".read.json"  # what a pipeline tells the process that started it
DASK = "apache_beam.runners.dask.dask_runner"


class _Read(apache_beam.DoFn):
    """Reads a source: the entries of missing shards, and behind the last shard what is known."""

    def __init__(self, plan: Plan, missing: frozenset[int]) -> None:
        self._plan, self._missing = plan, missing

    def process(self, source: Any) -> Iterator[tuple[int, bytes]]:
        sums = Sums.zero(len(self._plan.shards))
        for document in source.documents():
            shard, entry = self._plan.entry(document)
            sums.add(shard, entry)
            if shard in self._missing:
                yield shard, entry
        sums.reports.append((source.name, source.report()))
        # Not as an output of its own: Beam's runner for Dask knows only one.
        yield len(self._plan.shards), json.dumps(dataclasses.asdict(sums)).encode()


class _Write(apache_beam.DoFn):
    """Writes a shard, sorted on this worker's disk where it is larger than memory."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def process(self, element: tuple[int, Iterable[bytes]]) -> None:
        shard, entries = element
        if shard == len(self._plan.shards):
            total = Sums.zero(shard)
            for one in entries:
                total.join(Sums(**json.loads(one)))
            path = self._plan.targets[0].path
            Folder(path).write(SUMS, json.dumps(dataclasses.asdict(total)))
            return
        with tempfile.TemporaryDirectory() as room:
            worker = Worker(self._plan, pathlib.Path(room))
            sorter = worker.sorter()
            for entry in filter(None, entries):
                sorter.add(entry)
            parts = [run.part(shard) for run in sorter.runs(keep=True)]
            worker.write(shard, parts, lambda what, documents: None)


def write_all(
    sources: Sequence[Source], plan: Plan, runner: str, flags: Sequence[str]
) -> tuple[list[Manifest], Sums]:
    """Do what `writing.write_all` does, with the machines of a Beam runner.

    The runner is such as ``FnApiRunner`` (this machine) or ``DataflowRunner``, the flags are Beam's
    own options, such as ``--project=mine``. Each source is read by one worker; sources and the
    plan's folders must be where all workers see them.

    Raises:
        CourseError: Beam doesn't know an option, the pipeline failed, or as `writing.write_all`.
    """
    options = _options(runner, flags)
    finished = found(plan)
    missing = frozenset(range(len(plan.shards))) - finished.keys()
    try:
        with apache_beam.Pipeline(options=options) as pipeline:
            _build(pipeline, sources, plan, missing)
    except Exception as error:  # each runner has errors of its own
        raise _told(error, runner) from error
    folder = Folder(plan.targets[0].path)
    sums = Sums(**json.loads(folder.read(SUMS) or _nothing_read(folder)))
    folder.delete(SUMS)
    check_documents(plan, finished, sums)
    wanted = [at for at in sorted(missing) if has_documents(plan, at, sums)]
    for path in {plan.shards[at][0].path for at in missing.difference(wanted)}:
        Folder(path).delete("")
    prepare_folders(plan, wanted)
    return join(plan, sums, changed=bool(wanted)), sums


def _build(
    pipeline: apache_beam.Pipeline, sources: Sequence[Source], plan: Plan, missing: frozenset[int]
) -> None:
    entries = (
        pipeline
        | "sources" >> apache_beam.Create(sources)
        | "to all workers" >> apache_beam.Reshuffle()
        | "read" >> apache_beam.ParDo(_Read(plan, missing))
    )
    # A shard without documents is written, too.
    empty = pipeline | "shards" >> apache_beam.Create([(at, b"") for at in sorted(missing)])
    (
        (entries, empty)
        | apache_beam.Flatten()
        | "by shard" >> apache_beam.GroupByKey()
        | "write" >> apache_beam.ParDo(_Write(plan))
    )


def _options(runner: str, flags: Sequence[str]) -> PipelineOptions:
    """Read Beam's options; Beam itself would leave out what it doesn't know.

    Raises:
        CourseError: An option has no such name or no such value.
    """
    if runner == "DaskRunner":
        runner = f"{DASK}.{runner}"
    if runner.startswith(DASK):
        import apache_beam.runners.dask.dask_runner  # noqa: F401 (brings its options)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for some in PipelineOptions.__subclasses__():
        some._add_argparse_args(parser)
    all_flags = [f"--runner={runner}", *flags]
    try:
        unknown = parser.parse_known_args(all_flags)[1]
        why = f"It knows no {unknown[0]}." if unknown else None
    except argparse.ArgumentError as error:
        why = f"{error}."
    # Since 2.68 this runner looks for Prism first (apache/beam#34612; read 2026-11).
    if runner == "DirectRunner" and (direct := [f for f in flags if f.startswith("--direct_")]):
        why = f"DirectRunner may take Prism, which heeds no {direct[0]}; FnApiRunner does."
    if why:
        raise CourseError(
            "Beam can't use these options.",
            why,
            "Look them up in Beam's documentation of the runner; they stand behind --.",
        )
    return PipelineOptions(all_flags)


def _told(error: Exception, runner: str) -> CourseError:
    """Find what a worker raised in the long text that a runner makes of it."""
    if isinstance(error, CourseError):
        return error
    text = str(error)
    if found := re.search(r": (.+)\n  Why: (.+)\n  Fix: (.+?)( \[while running.*)?$", text, re.M):
        return CourseError(*found.groups()[:3])
    return CourseError(
        f"The pipeline failed on {runner.rpartition('.')[2]}.",
        " ".join(text.split())[-300:] or type(error).__name__,
        "Mend that and run the same command again: finished shards are kept.",
    )


def _nothing_read(folder: Folder) -> str:
    raise CourseError(
        f"The workers have written nothing to {folder.path}.",
        "The pipeline has ended, but its workers write to disks of their own.",
        "Name a folder that all machines see: gs://….",
    )
