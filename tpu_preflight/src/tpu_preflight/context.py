"""What the checks go by: made once by `checklist.preflight`, filled in stage by stage.

A check reads from it what it needs, and gives findings; see `checks`.
"""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpu_preflight import compiler
from tpu_preflight.compiler.client import TIMEOUT
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import timing
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.program import NotCompilable, Program, Tracing
from tpu_preflight.program.job import Job
from tpu_preflight.program.side_effects import SideEffect, watched
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.subject import Subject, Target


@dataclasses.dataclass(frozen=True)
class Answer:
    """What Google's compiler says of a program."""

    job: Job  # the program, and its target
    compiled: compiler.Compiled
    # The search for the largest batch; None where there was none: see `Context.compiling`.
    search: compiler.LargestBatch | None = None

    @property
    def is_too_large(self) -> bool:
        """Whether the program needs more memory than there is."""
        return self.compiled.verdict == "out of memory"

    @property
    def is_whole(self) -> bool:
        """Whether the compiler took every operation, if only there were memory enough."""
        return self.compiled.ok or self.is_too_large

    @property
    def none_fits(self) -> bool:
        """Whether even the smallest batch of the search does not fit."""
        if self.search is None or self.search.largest:
            return False
        # Where nothing fits, the last one tried is the smallest. The search may have ended there
        # for another reason, such as its time limit; then nothing is known of what fits.
        *_, last_tried = self.search.tried.values()
        return last_tried.verdict == "out of memory"

    @property
    def estimate(self) -> Estimate | None:
        """What a step costs; None where it does not compile."""
        if not self.compiled.ok:
            return None
        bound = compiler.roofline(self.compiled)
        largest_rows = None
        if self.search is not None and self.search.largest:
            largest_rows = self.search.largest
        # Compiled for one device, nothing is known of what several would send each other.
        all_reduce_bytes = None
        if self.compiled.replicas > 1:
            all_reduce_bytes = self.compiled.all_reduce_bytes
        return Estimate(
            target=self.job.target,
            replicas=self.job.replicas,
            rows=self.job.rows,
            flops=self.compiled.flops,
            bytes=self.compiled.traffic_bytes,
            peak_bytes=self.compiled.peak_bytes,
            available_bytes=self.compiled.available_bytes,
            compute_ms=bound.compute_seconds * 1e3,
            memory_ms=bound.hbm_seconds * 1e3,
            link_ms=bound.link_seconds * 1e3,
            all_reduce_bytes=all_reduce_bytes,
            largest_rows=largest_rows,
        )


@dataclasses.dataclass
class Context:
    """The subject, its targets, what was asked for, and what is known so far."""

    subject: Subject
    targets: tuple[Target, ...]
    say: Callable[[str], None]  # called with a line before something takes time
    # Whether the TPU is another machine, which can't call back and can't see this disk.
    is_node: bool = False
    # For a search for the largest batch on each target; None where it isn't asked for.
    search_seconds: float | None = None
    # The function that makes the subject, and arguments of it with values to try.
    factory: Callable[..., Any] | None = None
    vary: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    # Known after `trace`: a program for each target, or why there is none.
    jobs: list[Job] = dataclasses.field(default_factory=list)
    refusal: NotCompilable | None = None
    # What the step did in Python meanwhile.
    side_effects: list[SideEffect] = dataclasses.field(default_factory=list)
    # The step as ``TPUStrategy.run`` traces it, by the check `strategy_scope`; None if it doesn't.
    traced_under_run: Tracing | None = None
    # Whether that was the step as it is made inside the strategy's scope, with nothing against it.
    runs_in_scope: bool = False
    # Known after `compiling`: Google's compiler's answer to each job.
    answers: list[Answer] = dataclasses.field(default_factory=list)

    def read_sample(self, count: int) -> None:
        """Read the first batches of the dataset, if there is one."""
        if self.subject.dataset is not None:
            self.say("reading a sample of the dataset")
            self.subject.read_sample(count)

    def trace(self) -> None:
        """Trace the step, and let XLA on this CPU write a program of it for each target."""
        self.say("tracing, and asking XLA on this CPU")
        with watched(self.subject.python_functions) as effects:
            try:
                self.jobs = self.subject.export(self.targets)
            except NotCompilable as error:
                self.refusal = error
        self.side_effects = effects

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Let Google's compiler compile the jobs while the body runs; then its answers are known.

        Where a batch doesn't fit, or where it is asked for, the largest that fits is searched for.
        """
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            futures = [pool.submit(compile_job, job, self.say) for job in self.jobs]
            # Meanwhile the caller's checks run here: Google's compiler is in another process.
            yield
            compiled = [future.result() for future in futures]
        for job, result in zip(self.jobs, compiled, strict=True):
            answer = Answer(job, result)
            is_needed = answer.is_too_large and job.rows and result.peak_bytes
            is_asked_for = self.search_seconds is not None and answer.is_whole
            if job.rows is not None and (is_needed or is_asked_for):
                answer = dataclasses.replace(answer, search=self._search(job, result))
            self.answers.append(answer)

    def _search(self, job: Job, compiled: compiler.Compiled) -> compiler.LargestBatch:
        """Search for the largest batch that fits, in rows on each replica."""

        def program_of(rows: int) -> Program:
            self.say(f"{job.target}: a batch of {rows:,}")
            return self.subject.export_rows(job, rows)

        limits: dict[str, Any] = {}
        if not compiled.ok and job.rows > 1:
            # The job's own batch doesn't fit, so only smaller ones are tried. How much memory it
            # would need is known, and lets the search choose the next one.
            limits = {"most": job.rows - 1, "known": {job.rows: compiled}}
        elif not compiled.ok:
            # A single row doesn't fit: it is tried again, so that the search can say so.
            limits = {"most": 1}
        return compiler.largest_batch(
            program_of,
            job.target,
            smallest=8 if job.rows > 8 else 1,  # batches of more than 8 in steps of 8
            seconds=self.search_seconds or TIMEOUT,
            **limits,
        )

    def profile(self) -> tuple[list[Timing], list[Item]]:
        """Estimate the time of a step on each target for which it compiles: with full effort.

        Returns:
            The estimates; and an item for each target without one, which says why.
        """
        timings = []
        items = []
        for answer in self.answers:
            if not answer.compiled.ok:
                continue
            target = answer.job.target
            try:
                timings.append(timing.estimate(answer.job, self.say))
            except PreflightError as error:
                items.append(finding(7, "no_profile", target=target, reason=error.why))
            except Exception as error:  # another libtpu may write its programs in another way
                libtpu = compiler.versions().get("libtpu")
                reason = f"this version can't read what libtpu {libtpu} writes"
                reason += f" ({type(error).__name__}: {str(error)[:100]})"
                items.append(finding(7, "no_profile", target=target, reason=reason))
        return timings, items

    @property
    def estimates(self) -> list[Estimate]:
        """What a step costs on each target for which it compiles."""
        estimates = [answer.estimate for answer in self.answers]
        return [estimate for estimate in estimates if estimate is not None]


def compile_job(job: Job, say: Callable[[str], None]) -> compiler.Compiled:
    """Ask Google's compiler; ``say`` is called with a line at each stage."""

    def tell(stage: str, seconds: float) -> None:
        say(f"{job.target}: {stage}")

    return compiler.compile(job.program, job.target, progress=tell)
