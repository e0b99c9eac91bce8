"""A pretraining run that can be killed and resumed, to the last bit.

What a step computes is a function of the settings, the data and the step's number alone: order and
masks (`records`, `masking`), dropout (`model.Dropout`), learning rate. All other state is the
weights and the optimizer's, and a checkpoint holds them. So a run that was killed and started again
gives, on the same kind of machine, the very numbers of a run that was not.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder, is_remote
from helpers.base.language import translated
from helpers.bert.data import Data, read, unigram
from helpers.bert.model import pretraining_model
from helpers.bert.program import current_program
from helpers.bert.settings import (
    CHECKPOINTS,
    LOG,
    Description,
    Settings,
    read_log,
    saved_steps,
)
from helpers.bert.step import WarmUpLinearDecay, adamw, steps_function, training_step
from helpers.text import masking, records

KEPT = 2  # checkpoints
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
# The client's disk, or its way to the bucket, also where the weights are elsewhere.
HERE = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is."""

    step: int  # steps done
    steps: int  # of the whole run
    loss: float  # of the last step, in nats per masked token
    tokens_per_second: float  # without padding, since the report before


@dataclasses.dataclass(frozen=True)
class Run:
    """What a call of `run` did."""

    step: int  # steps done since the beginning of the run
    resumed: int  # the step at which this call began
    loss: np.ndarray  # of every step since the beginning, float64 [step]
    stopped: signal.Signals | None  # the signal that ended the call, if one did
    model: tf.keras.Model  # with the weights of the last step


def batches(data: Data, settings: Settings, start_step: int = 0) -> tf.data.Dataset:
    """Make the masked batches of a run, from any of its steps on.

    Gives global batches for `step.loss_sum`, without end; a batch depends on its step alone.

    Raises `CourseError`: As `records.dataset`.
    """
    rows = records.dataset(
        data.manifest.path,
        global_batch_size=settings.global_batch_size,
        seed=settings.seed,
        start_step=start_step,
    )

    def mask(step: tf.Tensor, batch: dict) -> dict:
        # The step of the whole run: a row is masked differently in each epoch.
        return batch | data.masks(batch["input_ids"], masking.draw(settings.seed, 0, step))

    numbered = rows.enumerate(start_step)
    return numbered.map(mask, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def make(settings: Settings, data: Data) -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
    """Make a run's model and optimizer as they are before the first step.

    The head's bias starts at the logarithm of the tokens' frequencies, where any training puts it
    first: what the loss then falls is learned from context.
    """
    model = pretraining_model(
        settings.size,
        data.masks.vocabulary,
        longest=data.manifest.settings.sequence_length,
        dropout=settings.dropout,
        seed=settings.seed,
        precision=settings.precision,
    )
    scores, _ = unigram(data)
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
    changed_program: bool = False,
    jit: bool = True,
    say: Callable[[str], None] = lambda text: None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Run:
    """Pretrain, from the beginning or from where an earlier run in the same folder ended.

    In the folder: ``settings.json``, ``checkpoints`` (the newest two), and ``log.jsonl``, a line
    per step, written with each checkpoint. Ctrl-C and SIGTERM save after the step and end the call.

    Args:
        settings: What the numbers depend on.
        data: Folder of records, here or ``gs://``.
        output: Folder of this run, here or ``gs://``.
        strategy: From ``connection.connect``; None: this machine as it is.
        steps_per_execution: Steps for each time that Python is asked, from 1 on.
        save_every: Steps from one checkpoint to the next, from 1 on.
        changed_program: Whether to go on where other code or other versions of the libraries
            computed the run so far; ``settings.json`` then says from which step on.
        jit: Whether XLA compiles the step; a TPU's is compiled in any case.
        say: Called with each line that a person should read.
        report: Called after each execution.

    Raises `CourseError`: The arguments don't fit each other; the folder holds another run or one of
    another program, or can't be used; or a loss is no number. Also as `data.read` and
    `records.dataset`.
    """
    folder = Folder(output)
    entries = Folder(data).entries()
    source = read(data)
    strategy = strategy or tf.distribute.get_strategy()
    _check(settings, source, strategy)
    path = Folder(source.manifest.path).absolute
    description = Description(settings, source.manifest.fingerprint, path)
    # Before the lock, which would be a new file in a folder that isn't a run's.
    description.check(folder)
    newest_step = max(saved_steps(folder), default=0)
    if newest_step:
        programs = Description.read(folder).programs
        description = dataclasses.replace(description, programs=programs)
    # Before a model is made, which takes long; what that step is becomes certain afterwards.
    description.after(newest_step, current_program(), may_change=changed_program)
    with contextlib.ExitStack() as lock, signals(say) as received:
        lock.enter_context(folder.alone())
        description.begin(folder)
        # The model, where the strategy wants its weights, and the step that trains it.
        with strategy.scope():
            model, optimizer = make(settings, source)
        step_function = training_step(
            model,
            optimizer,
            seed=settings.seed,
            clip_norm=settings.clip_norm,
            replicas=strategy.num_replicas_in_sync,
            jit=jit and not isinstance(strategy, tf.distribute.TPUStrategy),
        )
        execute = steps_function(strategy, step_function)
        # Where an earlier run ended; 0 for a new one.
        state = tf.train.Checkpoint(model=model, optimizer=optimizer)
        start = restore(state, folder, say)
        description = description.after(start, current_program(), may_change=changed_program)
        description.begin(folder)
        if start:
            say(translated(f"Going on after step {start:,} of {settings.steps:,}."))
        if len(description.programs) > 1 and description.programs[-1]["from_step"] == start + 1:
            say(translated(f"From step {start + 1:,} on another program computes this run."))
        _repair_pointer(folder)
        manager = tf.train.CheckpointManager(
            checkpoint=state,
            directory=folder.at(CHECKPOINTS),
            max_to_keep=KEPT,
            checkpoint_name="step",
        )
        # Steps after the checkpoint are computed again.
        log = read_log(folder, start)
        # From this step on the batches are those of a run that nothing disturbed.
        dataset = batches(source, settings, start)
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        step = start
        saved_step = start

        def save_all() -> None:
            if Folder(data).entries() != entries:
                _check_exchanged(data, description, saved_step)
            # The folder may have been deleted, and the lock with it.
            lock.close()
            lock.enter_context(folder.alone())
            description.begin(folder)
            save(manager, step, folder, log)

        while step < settings.steps and not received:
            start_time = time.monotonic()
            # Never past a checkpoint or the end, whatever an earlier call has done.
            next_execution = step - step % steps_per_execution + steps_per_execution
            next_save = step - step % save_every + save_every
            stop = min(settings.steps, next_execution, next_save)
            with records.reading(source.manifest.path):
                results = execute(iterator, step, stop - step)
                losses, norms, tokens = [values.numpy().tolist() for values in results]
            # Each step has its line, also where several are done in one execution.
            for loss, norm, count in zip(losses, norms, tokens, strict=True):
                step += 1
                _check_loss(step, loss, norm, saved_step, settings.learning_rate)
                row = {"step": step, "loss": loss, "norm": norm, "tokens": count}
                log.append(json.dumps(row) + "\n")
            tokens_per_second = sum(tokens) / (time.monotonic() - start_time)
            report(Progress(step, settings.steps, losses[-1], tokens_per_second))
            if step % save_every == 0:
                save_all()
                saved_step = step
        if step != saved_step:
            save_all()
    return Run(
        step=step,
        resumed=start,
        loss=np.array([json.loads(line)["loss"] for line in log]),
        stopped=received[0] if received else None,
        model=model,
    )


def _check_exchanged(
    data: str | os.PathLike[str], description: Description, saved_step: int
) -> None:
    """Raise a `CourseError` if records whose files changed have other bytes."""
    if records.verify(data).fingerprint != description.data:
        raise CourseError(
            "The records were replaced while the run read them.",
            f"What it learned since step {saved_step:,} may come from both.",
            "Bring those it began with back, and run the same command again.",
        )


def _repair_pointer(folder: Folder) -> None:
    """Repair TensorFlow's list of checkpoints: it deletes what is named there, wherever that is."""
    pointer = f"{CHECKPOINTS}/checkpoint"
    content = (folder.read(pointer) or b"").decode("utf-8", "replace")
    listed = re.findall(r'^all_model_checkpoint_paths: "(.*)"$', content, re.MULTILINE)
    existing = [f"step-{step}" for step in reversed(saved_steps(folder))]
    newest = existing[-KEPT:]
    names = [name for name in existing if name in listed or name in newest]
    if not names:
        folder.delete(pointer)
    elif names != listed:
        rows = [f'model_checkpoint_path: "{names[-1]}"']
        rows += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        rows += ["all_model_checkpoint_timestamps: 1"] * len(names)
        folder.write(pointer, "\n".join(rows))


def save(
    manager: tf.train.CheckpointManager, step: int, folder: Folder, log: Iterable[str]
) -> None:
    """Write the log and a checkpoint; TensorFlow writes its index last, then removes the oldest.

    Raises `CourseError`: It could not be written; the ones before stay.
    """
    # Whole each time, because a bucket can't append; a checkpoint is larger.
    folder.write(LOG, "".join(log))
    try:
        manager.save(step, options=HERE)
    except tf.errors.OpError as error:
        path = pathlib.PurePath(folder.at(f"{CHECKPOINTS}/step-{step}"))
        raise files.cant_write(path, error) from error
    finally:
        # What it wrote on the way; also that of a save that was killed.
        with contextlib.suppress(tf.errors.OpError, CourseError):
            for name in folder.list(CHECKPOINTS):
                if re.fullmatch(r"step-\d+_temp", name):
                    tf.io.gfile.rmtree(folder.at(f"{CHECKPOINTS}/{name}"))


def restore(
    state: tf.train.Checkpoint, folder: Folder, say: Callable[[str], None] = lambda text: None
) -> int:
    """Read a run's newest whole checkpoint; give its step, 0 where there is none at all.

    Says a line for each damaged one that is passed over: TensorFlow compares checksums.

    Raises `CourseError`: There are some and none can be read.
    """
    steps = saved_steps(folder)
    files_there = Folder(folder.at(CHECKPOINTS)).sizes()
    for step in steps:
        path = folder.at(f"{CHECKPOINTS}/step-{step}")
        try:
            for name in folder.list(CHECKPOINTS):
                if name.startswith(f"step-{step}.") and name not in files_there:
                    raise ValueError("a pipe or a device")  # TensorFlow would wait for ever
            names = [name for name, _ in tf.train.list_variables(path)]
            weights = [name for name in names if name.startswith("model/")]
            if len(weights) != len(state.model.variables):
                raise ValueError("another model")
            status = state.read(path, HERE)
            status.assert_existing_objects_matched().expect_partial()
            return step
        # What is read of an index has errors of Python's own; another model's lacks objects.
        except (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError) as error:
            damage = type(error).__name__
            say(f"The checkpoint of step {step:,} is damaged ({damage}); trying the one before.")
    if steps:
        raise CourseError(
            f"None of the {len(steps)} checkpoints can be read.",
            "Their files were changed or cut off after they were written, or are another model's.",
            "Bring them back from a copy, or start again in another output folder.",
        )
    return 0


@contextlib.contextmanager
def signals(say: Callable[[str], None]) -> Iterator[list[signal.Signals]]:
    """Take Ctrl-C or SIGTERM as a wish to stop after the step; a second one stops at once.

    Gives a list of those that came.
    """
    received: list[signal.Signals] = []

    def receive(number: int, _: object) -> None:
        signal.signal(number, handlers[number])
        received.append(signal.Signals(number))
        message = f"{SIGNALS[number]}: saving after this step (once more: stop immediately)."
        say(translated(message))

    handlers = {number: signal.signal(number, receive) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check(settings: Settings, data: Data, strategy: tf.distribute.Strategy) -> None:
    replicas = strategy.num_replicas_in_sync
    if settings.global_batch_size % replicas:
        raise CourseError(
            f"{settings.global_batch_size:,} rows of a step can't be divided.",
            f"{replicas} replicas get equally many rows each.",
            f"Take a multiple of {replicas}.",
        )
    with strategy.scope():
        trains_here = "/job:localhost" in tf.zeros([]).device
    if not trains_here and not is_remote(data.manifest.path):
        raise CourseError(
            "The data is on this machine's disk, the training on another machine.",
            "The other machine reads the records itself and can't see this disk.",
            "Write the records to a bucket (gs://…) and give its address as data.",
        )


def _check_loss(step: int, loss: float, norm: float, saved: int, learning_rate: float) -> None:
    if not math.isfinite(loss + norm):
        raise CourseError(
            f"Loss {loss}, gradient {norm} at step {step:,}.",
            "Most often the learning rate is too high, or grows too fast.",
            f"Start again in another output folder with a third of the learning rate "
            f"({learning_rate / 3:g}) or a longer warm-up; with bfloat16, try float32. The "
            f"last checkpoint, of step {saved:,}, is from before.",
        )
