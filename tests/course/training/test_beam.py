"""Apache Beam, in an environment apart: the same bytes as one process writes."""

import contextlib
import functools
import subprocess

import psutil
import pytest
from conventions import ROOT
from record_files import contents, finished, prepared
from terminal import without

from course import documents, runners
from helpers.base.errors import CourseError
from helpers.text import corpus, records
from tpu_preflight import processes

BEAM = ROOT / "build/beam/bin/python"
pytestmark = pytest.mark.slow
installed = pytest.mark.skipif(not BEAM.exists(), reason="needs Beam apart: make beam")

OPTIONS = ("--shards", "40", "--sequence-length", "64", "--runner", "FnApiRunner")
# Without Prism, to which DirectRunner may leave the work, and which heeds none of these.
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


def workers(pid):
    """Which of Beam's worker processes run now, among those that a process started."""
    for member in processes.family(pid):
        with contextlib.suppress(psutil.Error):
            if member.cmdline()[1:3] == ["-m", "apache_beam.runners.worker.sdk_worker_main"]:
                yield member.pid


def beam(output, *flags, inputs=(), status=0):
    """Run the command to its end; give what it says, and the worker processes that were seen."""
    command = [BEAM, "-m", "course", "prepare", "-o", output, *OPTIONS]
    for path in inputs:
        command += ["-i", path]
    command += ["--", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    run = subprocess.Popen(command, cwd=ROOT, env=without("PYTHON"), **pipes)
    worker_ids = set()
    while run.returncode is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            output_text, _ = run.communicate(timeout=0.1)
        worker_ids.update(workers(run.pid))
    assert run.returncode == status, output_text
    return output_text, worker_ids


@installed
def test_two_processes_write_the_same_bytes_as_one_and_only_what_is_missing(tmp_path):
    by_one_process = tmp_path / "one-process"
    output = tmp_path / "out"
    prepared(by_one_process, shards=40)
    shipped = list(corpus.shipped().values())[::-1]
    output_text, worker_ids = beam(output, *PROCESSES, inputs=shipped)
    assert "2,636 documents" in output_text
    assert len(worker_ids) == 2
    assert contents(output) == contents(by_one_process)
    (output / "shard-00007-of-00040.tfrecord").unlink()
    remaining = finished(output)
    beam(output)
    assert contents(output) == contents(by_one_process)
    assert remaining.items() <= finished(output).items()


@installed
def test_what_a_worker_cant_read_is_told(tmp_path):
    (tmp_path / "old.txt").write_bytes("Title\n옛날 문서입니다.\n".encode("cp949"))
    output_text, _ = beam(tmp_path / "out", inputs=[tmp_path / "old.txt"], status=2)
    assert "old.txt can't be read" in output_text
    assert "Traceback" not in output_text


def test_without_beam_the_way_to_it_is_told(tmp_path):
    source = documents.find(list(corpus.shipped().values()))
    run = functools.partial(runners.by_beam, runner="FnApiRunner", flags=())
    with pytest.raises(CourseError, match=r"not installed(.|\n)*pip install apache-beam") as caught:
        records.write(source, tmp_path, corpus.kept_tokenizer(), shards=2, run=run)
    assert "build/beam/.installed" in caught.value.fix
    assert not list(tmp_path.glob("shard*"))
