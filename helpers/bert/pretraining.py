"""A pretraining run that can be killed and resumed, to the last bit.

What a step computes is a function of the settings, the data and the step's number alone: order and
masks (`records`, `masking`), dropout (`model.Dropout`), learning rate. The state beside that is the
weights and the optimizer's, and a checkpoint holds them. So a run that was killed and started again
gives, on the same kind of machine, the very numbers of a run that was not.
"""

import dataclasses
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.base.folders import Folder, is_remote
from helpers.bert import checkpoints
from helpers.bert.checkpoints import Checkpoints, Log
from helpers.bert.data import Data, count_tokens, find_pairs, read, unigram
from helpers.bert.model import pretraining_model
from helpers.bert.settings import Description, Settings, begin, check, check_records
from helpers.bert.step import Outcome, WarmUpLinearDecay, adamw, steps_function, training_step
from helpers.text import masking, records

# The mean of this many losses must be below the unigram baseline by so much, in nats.
RECENT = 100
CLEARLY = 0.05

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is."""

    step: int  # steps done
    steps: int  # of the whole run
    loss: float  # of the last step, in nats per masked token (plus per pair)
    tokens_per_second: float | None  # without padding, since this process's first execution
    seconds_left: float | None  # at that speed; None before there is one


@dataclasses.dataclass(frozen=True)
class Run:
    """What a call of `run` did."""

    step: int  # steps done since the beginning of the run
    steps: int  # of the whole run
    resumed: int  # the step at which this call began
    loss: np.ndarray  # of every step since the beginning, float64 [step]
    unigram: float  # loss of guessing by the tokens' frequencies alone (and pairs by a coin)
    stopped: signal.Signals | None  # the signal that ended the call, if one did
    model: tf.keras.Model  # with the weights of the last step

    def __repr__(self) -> str:
        recent = f"{np.mean(self.loss[-RECENT:]):.2f}" if len(self.loss) else "unknown"
        end = f", stopped by {SIGNALS[self.stopped]}" if self.stopped else ""
        return (
            f"step {self.step:,} of {self.steps:,}{end}; loss {recent} (mean of the last "
            f"{min(RECENT, len(self.loss))}), unigram baseline {self.unigram:.2f}"
        )


def batches(data: Data, settings: Settings, start_step: int = 0) -> tf.data.Dataset:
    """Make the masked batches of a run, from any of its steps on.

    Gives global batches for `step.losses`, without end; a batch depends on its step alone.

    Raises:
        CourseError: As `records.dataset`.
    """
    rows = records.dataset(
        data.manifest.path,
        global_batch_size=settings.global_batch_size,
        seed=settings.seed,
        start_step=start_step,
    )

    @tf.autograph.experimental.do_not_convert  # half a second less at the start
    def mask(step: tf.Tensor, batch: dict) -> dict:
        # The step of the whole run: a row is masked differently in each epoch.
        masked = data.masks(batch["input_ids"], masking.draw(settings.seed, 0, step))
        return batch | masked | (find_pairs(batch) if settings.next_sentence else {})

    numbered = rows.enumerate(start_step)
    return numbered.map(mask, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def make(
    settings: Settings, data: Data, scores: np.ndarray
) -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
    """Make a run's model and optimizer as they are before the first step.

    The head's bias starts at the logarithm of the tokens' frequencies (``scores``, from
    `data.unigram`), which is where any training puts it first: the loss starts at the unigram
    baseline, and what it falls below it is learned from context.
    """
    model = pretraining_model(
        settings.size,
        data.masks.vocabulary,
        longest=data.manifest.settings.sequence_length,
        dropout=settings.dropout,
        seed=settings.seed,
        next_sentence=settings.next_sentence,
        precision=settings.precision,
    )
    model.mlm.predictions.bias.assign(scores.astype(np.float32))
    schedule = WarmUpLinearDecay(settings.learning_rate, settings.warm_up, settings.steps)
    return model, adamw(model, schedule, settings.weight_decay)


def run(
    settings: Settings,
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    strategy: tf.distribute.Strategy | None = None,
    steps_per_execution: int = 1,
    save_every: int = 100,
    patience: int = 500,
    jit: bool | None = None,
    say: Callable[[str], None] = lambda text: None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Run:
    """Pretrain, from the beginning or from where an earlier run in the same folder ended.

    In the folder: ``settings.json``, ``log.jsonl`` (a line per step), ``checkpoints`` (the newest
    two), ``tensorboard``. Ctrl-C and SIGTERM save after the step and end the call.

    Args:
        settings: What the numbers depend on.
        data: Folder of records, here or ``gs://``.
        output: Folder of this run, here or ``gs://``.
        strategy: From ``connection.connect``; this machine as it is where None. One machine feeds
            all replicas.
        steps_per_execution: Steps for each time that Python is asked.
        save_every: Steps from one checkpoint to the next.
        patience: Steps after the warm-up until the loss must be below the unigram baseline, by
            ``CLEARLY``; 0: never.
        jit: Whether XLA compiles the step; None: yes, except on a TPU, which does so by itself.
        say: Called with each line that a person should read.
        report: Called after each execution.

    Raises:
        CourseError: The arguments don't fit each other; the folder holds another run, is in use or
            can't be written; no checkpoint can be read; or training went wrong, which leaves the
            checkpoints from before. Also as `data.read` and `records.dataset`.
    """
    folder = Folder(output)
    strategy = strategy or tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    check(settings, steps_per_execution, save_every, patience, replicas)
    source = read(data)
    check_records(settings, source.manifest)
    _check_within_reach(source, strategy)
    with checkpoints.locked(folder), Signals(say) as signals:
        begin(folder, Description.of(settings, source.manifest, folder), say)
        scores, baseline = unigram(count_tokens(source))
        baseline += np.log(2) if settings.next_sentence else 0
        if jit is None:
            jit = not isinstance(strategy, tf.distribute.TPUStrategy)
        with strategy.scope():
            model, optimizer = make(settings, source, scores)
        step = training_step(
            model,
            optimizer,
            seed=settings.seed,
            clip_norm=settings.clip_norm,
            accumulate=settings.accumulate,
            replicas=replicas,
            jit=jit,
        )
        dataset = batches(source, settings)
        if jit and replicas == 1:
            # Traced before a checkpoint is looked for, the step has the same name in each process
            # of this run: by it XLA finds in its cache what it compiled before.
            number = tf.TensorSpec([], tf.int64)
            step.get_concrete_function(dict(dataset.element_spec), number, number)
        kept = Kept(folder, tf.train.Checkpoint(model=model, optimizer=optimizer))
        start = done = kept.restore(settings.steps, say)
        execute = steps_function(strategy, step)
        if start:
            dataset = batches(source, settings, start)
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        clock = Clock(settings.steps)
        judged_at = settings.warm_up + patience if patience > 0 else math.inf
        while done < settings.steps and signals.received is None:
            # An earlier call may have stopped between: then this is less than a whole execution.
            some = steps_per_execution - done % steps_per_execution
            rows = _rows(done, execute(iterator, done, some))
            _check_losses(rows, kept.saved, settings.learning_rate)
            done += some
            progress = clock.progress(done, rows)
            kept.add(rows, progress)
            report(progress)
            late = done >= judged_at
            if done % save_every == 0 or done == settings.steps or late:
                kept.save(done)
            if late:
                judged_at = math.inf
                _check_progress(done, kept.losses()[-RECENT:], baseline)
        kept.save(done)
        kept.close()
    return Run(done, settings.steps, start, kept.losses(), baseline, signals.received, model)


class Kept:
    """What a run keeps in its folder: checkpoints, the log, the curves for TensorBoard."""

    def __init__(self, folder: Folder, state: tf.train.Checkpoint) -> None:
        self._folder, self._state = folder, state
        self._checkpoints = Checkpoints(folder)
        self.saved = 0

    def restore(self, steps: int, say: Callable[[str], None]) -> int:
        """Go back to the newest whole checkpoint; give its step, 0 where there is none."""
        start = self.saved = self._checkpoints.newest(say)
        if start:
            self._checkpoints.load(start, self._state).assert_consumed()
            say(f"Going on after step {start:,} of {steps:,}.")
        self._checkpoints.clean(start)
        self._log = Log(self._folder, start)
        with tf.device("/job:localhost"):
            self._board = tf.summary.create_file_writer(self._folder.at("tensorboard"))
        return start

    def add(self, rows: list[dict], progress: Progress) -> None:
        """Log what steps gave, and continue the curves."""
        self._log.add(rows)
        with tf.device("/job:localhost"), self._board.as_default(step=progress.step):
            tf.summary.scalar("loss", progress.loss)
            for name in rows[-1].keys() & {"norm", "accuracy"}:
                tf.summary.scalar(name, rows[-1][name])
            if progress.tokens_per_second is not None:
                tf.summary.scalar("tokens_per_second", progress.tokens_per_second)

    def save(self, step: int) -> None:
        """Write a checkpoint, where this step has none."""
        if step != self.saved:
            self._log.commit()
            self._checkpoints.save(step, self._state)
            self.saved = step

    def losses(self) -> np.ndarray:
        """Give the loss of every step so far, float64 [steps]."""
        return np.array([row["loss"] for row in self._log.rows])

    def close(self) -> None:
        """End the curves."""
        with tf.device("/job:localhost"):
            self._board.close()


def _rows(first: int, outcome: Outcome) -> list[dict]:
    values = (v.numpy().tolist() for v in (outcome.loss, outcome.norm, outcome.tokens))
    return [
        {"step": step, "loss": loss, "norm": norm, "tokens": tokens}
        for step, (loss, norm, tokens) in enumerate(zip(*values, strict=True), first + 1)
    ]


class Clock:
    """Tokens per second and the time left, without the first execution, which compiles."""

    def __init__(self, steps: int) -> None:
        self._steps, self._tokens = steps, 0
        self._first: tuple[float, int] | None = None

    def progress(self, done: int, rows: list[dict]) -> Progress:
        """Say where the run is after ``done`` steps, the last of which gave these rows."""
        now, loss = time.monotonic(), rows[-1]["loss"]
        if self._first is None:
            self._first = now, done
            return Progress(done, self._steps, loss, None, None)
        self._tokens += sum(row["tokens"] for row in rows)
        seconds, steps = now - self._first[0], done - self._first[1]
        left = (self._steps - done) * seconds / steps
        return Progress(done, self._steps, loss, self._tokens / seconds, left)


class Signals:
    """Ctrl-C and SIGTERM as a wish to stop after the step; a second one stops at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.received: signal.Signals | None = None
        self._say = say
        self._before: dict = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: object) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        self._say(f"{SIGNALS[self.received]}: saving after this step (once more: stop at once).")


def _check_within_reach(data: Data, strategy: tf.distribute.Strategy) -> None:
    with strategy.scope():
        here = "/job:localhost" in tf.zeros([]).device
    if not here and not is_remote(data.manifest.path):
        raise CourseError(
            "The data is on this machine's disk, the training on another machine.",
            "The other machine reads the records itself and can't see this disk.",
            "Write the records to a bucket (gs://…) and give its address as data.",
        )


def _check_losses(rows: list[dict], checkpoint: int, learning_rate: float) -> None:
    kinds = (("loss", "loss"), ("norm", "gradient"))
    for row, (key, name) in itertools.product(rows, kinds):
        if not math.isfinite(row[key]):
            raise CourseError(
                f"The {name} is {row[key]} at step {row['step']:,}.",
                "Most often a step was too large for the numbers' range: the learning rate is too "
                "high, or grows too fast.",
                "Start again in another output folder with a third of the learning rate "
                f"({learning_rate / 3:g}) or a longer warm-up; with bfloat16, see whether float32 "
                f"goes well. Nothing is lost: the last checkpoint, of step {checkpoint:,}, is from "
                "before.",
            )


def _check_progress(step: int, recent: np.ndarray, unigram: float) -> None:
    mean = float(np.mean(recent))
    if mean > unigram - CLEARLY:
        raise CourseError(
            f"After {step:,} steps the loss is {mean:.2f} (mean of {len(recent)} steps); guessing "
            f"by the tokens' frequencies alone gives {unigram:.2f}.",
            "The model reads no context yet: the learning rate is far too high or too low, the "
            "words' order is lost in the data, or a large model needs more steps.",
            "Look at decoded rows of the data first; then try a learning rate three times higher "
            "and three times lower, each in another output folder. With patience 0 this run goes "
            "on, from here.",
        )
