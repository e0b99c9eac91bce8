"""Apache Beam, in an environment apart: the same bytes from any runner, a killed worker or not."""

import contextlib
import functools
import json
import re
import subprocess
import time

import psutil
import pytest
from conventions import ROOT
from plain import contents, prepared
from terminal import call, without

from helpers.base.errors import CourseError
from helpers.text import corpus, documents, records
from tpu_preflight import processes

BEAM = ROOT / "build/beam/bin/python"
pytestmark = pytest.mark.slow
installed = pytest.mark.skipif(not BEAM.exists(), reason="needs Beam apart: make beam")

OPTIONS = ("--shards", "40", "--sequence-length", "64")
# Without Prism, to which DirectRunner may leave the work, and which heeds none of these.
DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


def command(output, runner, *flags, inputs=()):
    words = [word for path in inputs for word in ("-i", path)]
    return (*(BEAM, "-m", "helpers", "prepare", "-o", output), *OPTIONS, *words, "--runner", runner,
            "--", *flags)  # fmt: skip


def beam(*words, status=0, **options):
    done = call(*command(*words, **options), env=without("PYTHON"))
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The shipped text, written by one process without Beam."""
    output = tmp_path_factory.mktemp("alone")
    prepared(output, shards=40)
    return output


def workers(pid):
    """Which of Beam's worker processes run now, among those that a process started."""
    for member in processes.family(pid):
        with contextlib.suppress(psutil.Error):
            if member.cmdline()[1:3] == ["-m", "apache_beam.runners.worker.sdk_worker_main"]:
                yield member.pid


@installed
def test_two_processes_of_beams_runner_here_write_the_same_bytes_and_only_what_is_missing(
    alone, tmp_path
):
    shipped = list(corpus.shipped().values())[::-1]
    words = command(tmp_path, "FnApiRunner", *PROCESSES, inputs=shipped)
    run = subprocess.Popen(
        words, cwd=ROOT, env=without("PYTHON"), stdout=subprocess.PIPE, text=True
    )
    seen = set()
    while run.poll() is None:
        seen.update(workers(run.pid))
        time.sleep(0.1)
    said = run.communicate()[0]
    assert run.returncode == 0 and len(seen) == 2
    assert "2,636 documents" in said
    assert contents(tmp_path) == contents(alone)
    name = f"shard-00007-of-{40:05}.tfrecord"
    (tmp_path / name).unlink()
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.tfrecord")}
    beam(tmp_path, "FnApiRunner")
    assert contents(tmp_path) == contents(alone)
    assert {path: (tmp_path / path).stat().st_mtime_ns for path in times} == times


@contextlib.contextmanager
def cluster(folder):
    """Dask: a scheduler and two workers, each a process with a memory of its own."""
    with contextlib.ExitStack() as stack:

        def start(name, *words):
            process = subprocess.Popen(
                [BEAM, "-m", f"distributed.cli.dask_{name}", "--no-dashboard", *words],
                cwd=ROOT,
                env=without("PYTHON"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return psutil.Process(process.pid)

        file = folder / "scheduler.json"
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        words = ("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")
        workers = [start("worker", *words, "--local-directory", str(folder)) for _ in range(2)]
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"], workers


@installed
def test_a_cluster_of_two_workers_loses_one_and_writes_the_same_bytes(alone, tmp_path):
    output = tmp_path / "out"
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster") as (address, workers):
        flags = (f"--dask_client_address={address}",)
        run = subprocess.Popen(
            command(output, DASK, *flags),
            cwd=ROOT,
            env=without("PYTHON"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(list(output.glob("*.json"))) < 5:
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.01)
        # The one that works; the other only waits, or has just ended its part.
        min(workers, key=lambda worker: worker.status() != psutil.STATUS_RUNNING).kill()
        at_the_kill = len(list(output.glob("*.json")))
        told = run.communicate(timeout=300)[1]
        assert run.returncode == 0, told
    assert at_the_kill < 40 and contents(output) == contents(alone)


@installed
def test_what_a_worker_cant_read_is_told(tmp_path):
    (tmp_path / "old.txt").write_bytes("Title\n옛날 문서입니다.\n".encode("cp949"))
    told = beam(tmp_path / "out", "FnApiRunner", inputs=[tmp_path / "old.txt"], status=2).stderr
    assert "old.txt can't be read" in told and "Traceback" not in told


@installed
def test_the_dataflow_command_is_one_that_beam_understands():
    """The very words of notebook 06; the command's help has them with a project of its own."""
    cells = json.loads((ROOT / "notebooks/06_bert_data.ipynb").read_text("utf-8"))["cells"]
    (text,) = (t for cell in cells if "DataflowRunner" in (t := "".join(cell["source"])))
    flags = re.search(r"--runner DataflowRunner -- (.+?)```", text, re.DOTALL)[1]
    flags = flags.replace("\\\n", " ").split()
    help_ = call(BEAM, "-m", "helpers", "prepare", "--help").stdout
    for flag in flags:
        assert flag.partition("=")[0] in help_


def test_without_beam_the_way_to_it_is_told(tmp_path):
    source = documents.find(list(corpus.shipped().values()))
    run = functools.partial(records.by_beam, runner="FnApiRunner", flags=())
    with pytest.raises(CourseError, match=r"not installed(.|\n)*pip install apache-beam") as caught:
        records.write(source, tmp_path, corpus.kept_tokenizer(), shards=2, run=run)
    assert "build/beam/.installed" in caught.value.fix
    assert not list(tmp_path.glob("shard*"))
