"""A pretraining run that survives its end: exact resume, whole checkpoints, one clear message.

What a step computes is a function of the settings, the data and the step's number alone: order and
masks (`records`, `masking`), dropout (`bert.Dropout`), learning rate. The state beside that is the
weights and the optimizer's, and a checkpoint holds them. So a run that was killed and started again
gives, on the same kind of machine, the very numbers of a run that was not.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.bert import model as bert
from helpers.text import corpus, masking, records

FORMAT = 1
SETTINGS = "settings.json"
LOG = "log.jsonl"
CHECKPOINTS = "checkpoints"
KEEP = 2

# Rows that the frequencies of tokens are counted in, at most.
COUNTED = 10_000
# The mean of so many losses is compared with the unigram baseline, in nats.
RECENT = 100
CLEARLY = 0.05

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class OtherRun(CourseError):
    """The output folder holds a run of other settings or other data."""


class RunInUse(CourseError):
    """Another process is writing into the output folder."""


class NotARun(CourseError):
    """The output folder holds checkpoints, but what they belong to can't be read."""


class AllDamaged(CourseError):
    """No checkpoint of a run is whole."""


class CantRead(CourseError):
    """A checkpoint's place does not answer."""


class CantSave(CourseError):
    """A checkpoint could not be written."""


class LossNotFinite(CourseError):
    """The loss became infinite or no number."""


class NoProgress(CourseError):
    """The model does no better than counting words."""


class BadSettings(CourseError):
    """Numbers that don't fit each other."""


class NoPairs(CourseError):
    """Next sentence prediction is asked for, and the records hold no pairs."""


class DataOutOfReach(CourseError):
    """The data is on this machine's disk, and the training is on another machine."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the numbers of a run depend on, beside the data.

    Attributes:
        size: Of the model.
        steps: Of the whole run: the learning rate is 0 after them.
        global_batch_size: Rows per step, over all replicas.
        learning_rate: The highest, at the end of the warm-up.
        warm_up: Steps until then.
        weight_decay: Of AdamW.
        clip_norm: Longest gradient.
        dropout: Share of values dropped.
        accumulate: Parts that a replica's rows are divided into, one after the other.
        precision: ``float32`` or ``mixed_bfloat16``.
        seed: Of weights, order, masks and dropout.
        next_sentence: Whether the loss of the paper's second head is added; the data holds pairs.
    """

    size: bert.Configuration
    steps: int
    global_batch_size: int = 32
    learning_rate: float = 1e-3
    warm_up: int = 100
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dropout: float = 0.1
    accumulate: int = 1
    precision: str = "float32"
    seed: int = 0
    next_sentence: bool = False


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is.

    Attributes:
        step: Steps done.
        steps: Of the whole run.
        loss: Of the last step, in nats per masked token (plus per pair).
        tokens_per_second: Places that held a token, since the first execution of this process.
        seconds_left: At that speed; None before there is one.
    """

    step: int
    steps: int
    loss: float
    tokens_per_second: float | None
    seconds_left: float | None


@dataclasses.dataclass(frozen=True)
class Run:
    """What a call of `run` did.

    Attributes:
        output: The run's folder.
        step: Steps done since the beginning of the run.
        steps: Of the whole run.
        resumed: The step at which this call began.
        loss: Loss of every step since the beginning, float64 [step].
        unigram: Loss of guessing by the tokens' frequencies alone (and, with next sentence
            prediction, by a coin).
        stopped: The signal that ended the call; None where it came to its end.
        model: With the weights of the last step.
    """

    output: str
    step: int
    steps: int
    resumed: int
    loss: np.ndarray
    unigram: float
    stopped: signal.Signals | None
    model: tf.keras.Model = dataclasses.field(repr=False)

    def __repr__(self) -> str:
        recent = f"{np.mean(self.loss[-RECENT:]):.2f}" if len(self.loss) else "unknown"
        end = f", stopped by {SIGNALS[self.stopped]}" if self.stopped else ""
        return (
            f"step {self.step:,} of {self.steps:,}{end}; loss {recent} (mean of the last "
            f"{min(RECENT, len(self.loss))}), unigram baseline {self.unigram:.2f}"
        )


# Data.


@dataclasses.dataclass(frozen=True)
class Data:
    """Records to train on.

    Attributes:
        manifest: What they are.
        masks: How they are masked.
    """

    manifest: records.Manifest
    masks: masking.Masking

    @property
    def fingerprint(self) -> dict[str, str | int]:
        """Say what the numbers of a run depend on: what is in the records, not where they are."""
        content = [(s.name, s.rows, s.crc32c) for s in self.manifest.shards]
        return {
            "rows": self.manifest.rows,
            "sequence_length": self.manifest.settings.sequence_length,
            "tokenizer": self.manifest.settings.tokenizer_sha256,
            "content": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        }


def read(path: str | os.PathLike[str]) -> Data:
    """Find records and the way to mask them.

    Args:
        path: Folder that `records.write` wrote, here or ``gs://``.

    Returns:
        The data.

    Raises:
        records.ManifestMissing, records.ManifestDamaged: There are no finished records.
        records.SpecialTokensMissing: The tokenizer has no ``[MASK]``.
    """
    import tokenizers

    manifest = records.manifest(path)
    with tf.io.gfile.GFile(_at(manifest.path, records.TOKENIZER), "r") as file:
        tokenizer = tokenizers.Tokenizer.from_str(file.read())
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    special = {name: tokenizer.token_to_id(name) for name in names}
    if None in special.values():
        missing = [name for name, number in special.items() if number is None]
        raise records.SpecialTokensMissing(
            f"The tokenizer of the records has no {', '.join(missing)}.",
            "BERT's masking needs these tokens: one to put in, and those never to choose.",
            "Train a BERT tokenizer (corpus.train_tokenizer) and write the records with it.",
        )
    places = manifest.settings.sequence_length
    masks = masking.Masking(
        manifest.settings.vocabulary,
        special["[MASK]"],
        tuple(special.values()),
        max(1, round(masking.RATE * places)),
    )
    return Data(manifest, masks)


def prepare_shipped(
    output: str | os.PathLike[str], sequence_length: int = 128, *, pairs: bool = False
) -> str:
    """Write the course's own text as records, without its held-out paragraphs.

    Args:
        output: Folder, here or ``gs://``; what is finished there is kept.
        sequence_length: Places per row.
        pairs: As `records.write`.

    Returns:
        The folder.

    Raises:
        As `corpus.read`, `corpus.load_tokenizer` and `records.write`.
    """
    documents = [
        text
        for path in corpus.shipped().values()
        for line, text in enumerate(corpus.read(pathlib.Path(path)))
        if not corpus.held_out(line)
    ]
    tokenizer = corpus.load_tokenizer()
    records.write(
        documents, output, tokenizer, sequence_length=sequence_length, shards=2, pairs=pairs
    )
    return os.fspath(output)


def batches(data: Data, settings: Settings, start_step: int = 0) -> tf.data.Dataset:
    """Make the masked batches of a run, from any of its steps on.

    Args:
        data: From `read`.
        settings: Batch size, seed and ``next_sentence`` are used.
        start_step: Steps already done.

    Returns:
        Global batches for `bert.losses`, for ever; what a batch is depends on its step alone.

    Raises:
        As `records.dataset`.
    """
    rows = records.dataset(
        data.manifest.path,
        global_batch_size=settings.global_batch_size,
        seed=settings.seed,
        start_step=start_step,
    )

    @tf.autograph.experimental.do_not_convert  # half a second less at the start
    def mask(step: tf.Tensor, batch: dict) -> dict:
        # The step of the whole run: a row is masked otherwise in each epoch.
        masked = data.masks(batch["input_ids"], masking.draw(settings.seed, 0, step))
        return batch | masked | (pairs(batch) if settings.next_sentence else {})

    numbered = rows.enumerate(start_step)
    return numbered.map(mask, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def pairs(batch: bert.Batch) -> bert.Batch:
    """Find the pairs of packed rows and their labels.

    Args:
        batch: Of records with pairs, from `records.dataset`.

    Returns:
        ``pair_positions``, ``pair_labels`` int32 and ``pair_weights`` float32 [rows, pairs], as
        `bert.losses` takes them: as many as a row can hold of the shortest pairs,
        ``[CLS] a [SEP] b [SEP]``.
    """
    first = (batch["attention_mask"] > 0) & (batch["position_ids"] == 0)
    places = first.shape[1]
    rank, at = tf.math.top_k(tf.where(first, tf.range(places, 0, -1), 0), places // 5)
    return {
        "pair_positions": at,
        "pair_labels": tf.gather(batch["random_next"], at, batch_dims=1),
        "pair_weights": tf.cast(rank > 0, tf.float32),
    }


def count_tokens(data: Data) -> np.ndarray:
    """Count the tokens that masking may choose, in the first rows.

    Args:
        data: From `read`.

    Returns:
        int64 [vocabulary].
    """
    manifest = data.manifest
    paths = [_at(manifest.path, shard.name) for shard in manifest.shards]
    kind = np.dtype(manifest.features["input_ids"]).newbyteorder("<")
    feature = {"input_ids": tf.io.FixedLenFeature([], tf.string)}
    counts = np.zeros(data.masks.vocabulary, np.int64)
    # Which document is in which shard was drawn: the first rows are as good as any.
    for some in tf.data.TFRecordDataset(paths).take(COUNTED).batch(1_000):
        raw = tf.io.parse_example(some, feature)["input_ids"].numpy()
        counts += np.bincount(np.frombuffer(b"".join(raw), kind), minlength=len(counts))
    counts[list(data.masks.special_ids)] = 0
    return counts


def unigram(counts: np.ndarray) -> tuple[np.ndarray, float]:
    """Say how well one guesses who knows how frequent each token is and reads no context.

    Args:
        counts: From `count_tokens`.

    Returns:
        Logarithm of each token's share, float64 [vocabulary], no token being impossible (one more
        of each is counted); and the mean loss of guessing so, in nats per token.
    """
    scores = np.log((counts + 1) / (counts + 1).sum())
    return scores, float(-(counts * scores).sum() / counts.sum())


# Files: here whole or absent, through a temporary name; in a bucket an object always is.


def _at(*parts: str) -> str:
    return "/".join([parts[0].rstrip("/"), *parts[1:]])


def _is_remote(path: str) -> bool:
    return "://" in path


def _write(path: str, data: str) -> None:
    if not _is_remote(path):
        files.write(pathlib.Path(path), data)
        return
    try:
        with tf.io.gfile.GFile(path, "w") as file:
            file.write(data)
    except tf.errors.OpError as error:
        raise _cant_save(path, error) from error


def _read(path: str) -> str | None:
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            return file.read()
    except tf.errors.NotFoundError:
        return None


def _cant_save(what: str, error: Exception) -> CantSave:
    text = str(error).strip().splitlines()[0][:300]
    full = isinstance(error, tf.errors.ResourceExhaustedError) or "No space left" in text
    return CantSave(
        f"{what.rpartition('/')[2]} could not be written.",
        "The disk is full." if full else text,
        ("Make room" if full else "Mend what it names")
        + ", then run the same command again: it goes on from the last checkpoint.",
    )


@contextlib.contextmanager
def _lock(output: str) -> Iterator[None]:
    """Keep a second process out; the system opens the lock when this process ends, however."""
    if _is_remote(output):
        yield
        return
    folder = pathlib.Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder.joinpath(".lock").open("a")
    except OSError as error:
        raise files.CantWrite(
            f"Nothing can be written into {folder.name}.",
            f"{error.strerror}: {error.filename}",
            "Check who owns the folder and that it is writable, or take another output folder.",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInUse(
                f"Another process is training in {folder.name}.",
                "Two would overwrite each other's checkpoints.",
                "Wait until it ends, or stop it (Ctrl-C there): then run this again to go on.",
            ) from None
        yield


class _Log:
    """The losses, one line of JSON per step, each step once: also after a crash.

    A line is appended when its step is done. Steps after the last checkpoint are computed again
    after a crash, so their lines (and half a line, the last) are taken away at the start. In a
    bucket, where nothing can be appended, the whole log is written with each checkpoint.
    """

    def __init__(self, path: str, step: int) -> None:
        self.path = path
        self.rows: list[dict] = []
        for line in (_read(path) or "").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                break
            if not row["step"] == len(self.rows) + 1 <= step:
                break
            self.rows.append(row)
        self.missing = step - len(self.rows)
        self._written = 0
        _write(path, "".join(map(_line, self.rows)))

    def add(self, rows: Iterable[dict]) -> None:
        new = list(rows)
        self.rows += new
        if not _is_remote(self.path):
            try:
                with pathlib.Path(self.path).open("a") as file:
                    file.write("".join(map(_line, new)))
            except OSError as error:
                raise _cant_save(self.path, error) from error

    def commit(self) -> None:
        """Make sure that what was added is there before the checkpoint that comes after it."""
        if _is_remote(self.path):
            _write(self.path, "".join(map(_line, self.rows)))
            return
        try:
            _sync(pathlib.Path(self.path))
        except OSError as error:
            raise _cant_save(self.path, error) from error


def _line(row: dict) -> str:
    return json.dumps(row) + "\n"


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Checkpoints:
    """Checkpoints that are whole or absent, the newest two of them.

    Here a checkpoint is written into a folder of another name, which is renamed when all of it is
    on the disk. In a bucket TensorFlow writes the index last: without it, a checkpoint is none.
    """

    def __init__(self, output: str, checkpoint: tf.train.Checkpoint) -> None:
        self.folder = _at(output, CHECKPOINTS)
        self.checkpoint = checkpoint
        # The client's disk, or its way to the bucket, also where the weights are elsewhere.
        self.options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")

    def steps(self) -> list[int]:
        """Steps of all checkpoints, newest first."""
        if not tf.io.gfile.isdir(self.folder):
            return []
        names = (name.rstrip("/") for name in tf.io.gfile.listdir(self.folder))
        found = [name.removeprefix("step-") for name in names if name.startswith("step-")]
        return sorted((int(number) for number in found if number.isdecimal()), reverse=True)

    def _named(self, step: int) -> str:
        return _at(self.folder, f"step-{step:09d}")

    def save(self, step: int) -> None:
        """Write one; then remove what is older than the two newest."""
        final = self._named(step)
        writing = final if _is_remote(final) else _at(self.folder, f".writing-{step:09d}")
        try:
            for leftover in {writing, final}:
                if tf.io.gfile.exists(leftover):
                    tf.io.gfile.rmtree(leftover)
            tf.io.gfile.makedirs(writing)
            self.checkpoint.write(_at(writing, "state"), self.options)
            if not _is_remote(final):
                for path in pathlib.Path(writing).iterdir():
                    _sync(path)
                pathlib.Path(writing).rename(final)
                _sync(pathlib.Path(self.folder))
        except (tf.errors.OpError, OSError) as error:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(writing)
            raise _cant_save(f"The checkpoint of step {step:,}", error) from error
        for old in self.steps()[KEEP:]:
            tf.io.gfile.rmtree(self._named(old))

    def restore(self, say: Callable[[str], None]) -> int:
        """Read the newest whole checkpoint.

        Returns:
            Its step, 0 where there is no checkpoint at all.

        Raises:
            AllDamaged: There are some, and none is whole.
            CantRead: Their place does not answer.
        """
        if not _is_remote(self.folder):
            for leftover in pathlib.Path(self.folder).glob(".writing-*"):
                tf.io.gfile.rmtree(str(leftover))
        steps = self.steps()
        for step in steps:
            prefix = _at(self._named(step), "state")
            damage = _damage(prefix)
            if damage:
                say(
                    f"The checkpoint of step {step:,} is damaged ({damage}); trying the one before."
                )
                continue
            self.checkpoint.read(prefix, self.options).assert_consumed()
            for damaged in (other for other in steps if other > step):
                tf.io.gfile.rmtree(self._named(damaged))
            return step
        if steps:
            raise AllDamaged(
                f"None of the {len(steps)} checkpoints can be read.",
                "Their files were changed, cut off or removed after they were written.",
                "Bring them back from a copy, or start again in another output folder.",
            )
        return 0


def _damage(prefix: str) -> str:
    """Read every byte that a restore would use; TensorFlow compares the checksums."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    # The reader gives most of what can happen the same type, some of it types of Python's.
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        _check_answers(prefix)
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
    return ""


def _check_answers(prefix: str) -> None:
    """Make sure that a checkpoint's place can be read: one that can't says nothing of its bytes."""
    folder = prefix.rpartition("/")[0]
    try:
        for name in tf.io.gfile.listdir(folder):
            with tf.io.gfile.GFile(_at(folder, name), "rb") as file:
                file.read(1)
    except tf.errors.OpError as error:
        raise CantRead(
            "A checkpoint could not be read.",
            str(error).strip().splitlines()[0][:300],
            "Run the same command again when its place can be reached; nothing was changed.",
        ) from error


class _Signals:
    """Ctrl-C and SIGTERM as a wish to stop after the step; a second one stops at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.received: signal.Signals | None = None
        self._say = say
        self._before: dict = {}

    def __enter__(self) -> "_Signals":
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


# The run.


def _check(settings: Settings, steps_per_execution: int, save_every: int, replicas: int) -> None:
    numbers = {
        "steps": (settings.steps, steps_per_execution),
        "save_every": (save_every, steps_per_execution),
        "global_batch_size": (settings.global_batch_size, replicas * settings.accumulate),
    }
    why = {
        "global_batch_size": f"Each of {replicas} replicas gets as many rows as the others, in "
        f"{settings.accumulate} parts.",
    }
    for name, (number, factor) in numbers.items():
        if number < 1 or factor < 1 or number % factor:
            raise BadSettings(
                f"{name} is {number:,}.",
                why.get(name, f"{steps_per_execution} steps are done in one call, never a part."),
                f"Take a multiple of {max(1, factor)}.",
            )


def _same_run(output: str, settings: Settings, data: Data) -> None:
    """Write down what the folder's run is, or compare with what is written there."""
    mine = {
        "format": FORMAT,
        "settings": dataclasses.asdict(settings),
        "data": data.fingerprint,
    }
    path = _at(output, SETTINGS)
    text = _read(path)
    if text is None:
        if tf.io.gfile.isdir(_at(output, CHECKPOINTS)):
            raise NotARun(
                f"The output folder has checkpoints and no {SETTINGS}.",
                "What they belong to can't be known.",
                f"Bring {SETTINGS} back, or take another output folder.",
            )
        _write(path, json.dumps(mine, indent=2) + "\n")
        return
    try:
        theirs = json.loads(text)
        both = [
            {**run["settings"], **run["data"], "format": run["format"]} for run in (theirs, mine)
        ]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise NotARun(
            f"{SETTINGS} in the output folder can't be read.",
            "It was changed by hand, or is another program's.",
            "Take another output folder.",
        ) from None
    there, here = both
    different = [
        f"{name} {_short(there.get(name))} there, {_short(here.get(name))} now"
        for name in here | there
        if there.get(name) != here.get(name)
    ]
    if different:
        raise OtherRun(
            f"The output folder holds another run: {'; '.join(different)}.",
            "Going on with other settings would give a run that nothing describes.",
            "Give the settings it was started with to go on, or take another output folder.",
        )


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return value[:8] if isinstance(value, str) and len(value) == 64 else str(value)


def _check_losses(first: int, outcome: bert.Outcome, checkpoint: int, learning_rate: float) -> None:
    losses, norms = outcome.loss.numpy(), outcome.norm.numpy()
    wrong = np.flatnonzero(~(np.isfinite(losses) & np.isfinite(norms)))
    if len(wrong):
        at = wrong[0]
        what = "loss" if not np.isfinite(losses[at]) else "gradient"
        value = losses[at] if what == "loss" else norms[at]
        raise LossNotFinite(
            f"The {what} is {value} at step {first + at + 1:,}.",
            "A step was too large for the numbers' range, most often: the learning rate is too "
            "high, or grows too fast.",
            f"Start again in another output folder with a third of the learning rate "
            f"({learning_rate / 3:g}) or a longer warm-up; with bfloat16, see whether float32 goes "
            f"well. Nothing is lost: the last checkpoint, of step {checkpoint:,}, is from before.",
        )


def _check_progress(step: int, recent: list[float], unigram: float) -> None:
    mean = float(np.mean(recent))
    if mean > unigram - CLEARLY:
        raise NoProgress(
            f"After {step:,} steps the loss is {mean:.2f} (mean of {len(recent)} steps); guessing "
            f"by the tokens' frequencies alone gives {unigram:.2f}.",
            "The model reads no context yet: the learning rate is far too high or too low, the "
            "words' order is lost in the data, or a large model needs more steps.",
            "Look at decoded rows of the data first; then try a learning rate three times higher "
            "and three times lower, each in another output folder. With patience 0 this run goes "
            "on, from here.",
        )


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
        strategy: From ``runtime.connect``; this machine as it is where None. One machine feeds all
            replicas.
        steps_per_execution: Steps for each time that Python is asked.
        save_every: Steps from one checkpoint to the next.
        patience: Steps after the warm-up until the loss must be below the unigram baseline, by
            ``CLEARLY``; 0: never.
        jit: Whether XLA compiles the step; None: yes, except on a TPU, which does so by itself.
        say: Called with each line that a person should read.
        report: Called after each execution.

    Returns:
        What was done.

    Raises:
        BadSettings, NoPairs, DataOutOfReach: The arguments don't fit each other.
        OtherRun, NotARun, RunInUse: The folder is not this run's, or not free.
        AllDamaged, CantRead: The run's checkpoints can't be read.
        LossNotFinite, NoProgress: Training went wrong; the checkpoints from before stay.
        CantSave, files.CantWrite: The output could not be written; what was there stays.
        records.CourseError: As `read` and `records.dataset`.
    """
    output = os.fspath(output).rstrip("/")
    strategy = strategy or tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    _check(settings, steps_per_execution, save_every, replicas)
    source = read(data)
    _check_pairs(settings, source)
    _check_reach(strategy, source.manifest.path)
    if _is_remote(output):
        tf.io.gfile.makedirs(output)
    with _lock(output), _Signals(say) as signals:
        _same_run(output, settings, source)
        scores, baseline = unigram(count_tokens(source))
        baseline += np.log(2) if settings.next_sentence else 0
        if jit is None:
            jit = not isinstance(strategy, tf.distribute.TPUStrategy)
        with strategy.scope():
            model, optimizer = make(settings, source, scores)
        step = bert.training_step(
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
        state = tf.train.Checkpoint(model=model, optimizer=optimizer)
        checkpoints = _Checkpoints(output, state)
        start = saved = checkpoints.restore(say)
        if start:
            say(f"Going on after step {start:,} of {settings.steps:,}.")
        log = _Log(_at(output, LOG), start)
        if log.missing:
            raise NotARun(
                f"The log has no line for {log.missing:,} of the {start:,} steps done.",
                f"{LOG} was removed or changed since the checkpoint was written.",
                "Bring it back from a copy, or start again in another output folder.",
            )
        execute = bert.steps_function(strategy, step)
        if start:
            dataset = batches(source, settings, start)
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        board = _Board(_at(output, "tensorboard"))
        clock = _Clock(settings.steps)
        done, judged = start, False
        while done < settings.steps and signals.received is None:
            outcome = execute(iterator, done, steps_per_execution)
            _check_losses(done, outcome, saved, settings.learning_rate)
            rows = _rows(done, outcome)
            log.add(rows)
            done += steps_per_execution
            progress = clock.progress(done, rows)
            board.write(progress, rows[-1])
            report(progress)
            late = not judged and patience > 0 and done >= settings.warm_up + patience
            if done % save_every == 0 or done == settings.steps or late:
                log.commit()
                checkpoints.save(done)
                saved = done
            if late:
                judged = True
                _check_progress(done, [row["loss"] for row in log.rows[-RECENT:]], baseline)
        if done != saved:
            log.commit()
            checkpoints.save(done)
        board.close()
        losses = np.array([row["loss"] for row in log.rows])
    return Run(output, done, settings.steps, start, losses, baseline, signals.received, model)


def make(
    settings: Settings, data: Data, scores: np.ndarray
) -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
    """Make a run's model and optimizer as they are before the first step.

    The head's bias starts at the logarithm of the tokens' frequencies, which is where any training
    puts it first: the loss starts at the unigram baseline, and what it falls below it is learned
    from context.

    Args:
        settings: Of the run.
        data: From `read`.
        scores: From `unigram`.

    Returns:
        Model and optimizer.
    """
    model = bert.pretraining_model(
        settings.size,
        data.masks.vocabulary,
        longest=data.manifest.settings.sequence_length,
        dropout=settings.dropout,
        seed=settings.seed,
        next_sentence=settings.next_sentence,
        precision=settings.precision,
    )
    model.mlm.predictions.bias.assign(scores.astype(np.float32))
    schedule = bert.WarmUpLinearDecay(settings.learning_rate, settings.warm_up, settings.steps)
    return model, bert.adamw(model, schedule, settings.weight_decay)


def _check_pairs(settings: Settings, data: Data) -> None:
    if settings.next_sentence and not data.manifest.settings.pairs:
        raise NoPairs(
            "Next sentence prediction is asked for, and the records hold no pairs.",
            "Each of their sequences is one piece of text: there is no second to judge.",
            "Write records with pairs (`prepare --pairs`, records.write(…, pairs=True)), or train "
            "without next sentence prediction.",
        )


def _check_reach(strategy: tf.distribute.Strategy, path: str) -> None:
    with strategy.scope():
        here = "/job:localhost" in tf.zeros([]).device
    if not here and not _is_remote(path):
        raise DataOutOfReach(
            "The data is on this machine's disk, the training on another machine.",
            "The other machine reads the records itself and can't see this disk.",
            "Write the records to a bucket (gs://…) and give its address as data.",
        )


def _rows(first: int, outcome: bert.Outcome) -> list[dict]:
    values = zip(outcome.loss.numpy(), outcome.norm.numpy(), outcome.tokens.numpy(), strict=True)
    return [
        {"step": first + at + 1, "loss": float(loss), "norm": float(norm), "tokens": int(tokens)}
        for at, (loss, norm, tokens) in enumerate(values)
    ]


class _Clock:
    """Tokens per second and the time left, without the first execution, which compiles."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.first: tuple[float, int] | None = None
        self.tokens = 0

    def progress(self, done: int, rows: list[dict]) -> Progress:
        now = time.monotonic()
        speed = left = None
        if self.first is None:
            self.first = (now, done)
        else:
            self.tokens += sum(row["tokens"] for row in rows)
            seconds, step = now - self.first[0], done - self.first[1]
            speed = self.tokens / seconds
            left = (self.steps - done) * seconds / step
        return Progress(done, self.steps, rows[-1]["loss"], speed, left)


class _Board:
    """The curves for TensorBoard."""

    def __init__(self, folder: str) -> None:
        with tf.device("/job:localhost"):
            self.writer = tf.summary.create_file_writer(folder)

    def write(self, progress: Progress, row: dict) -> None:
        with tf.device("/job:localhost"), self.writer.as_default(step=progress.step):
            tf.summary.scalar("loss", row["loss"])
            tf.summary.scalar("gradient_norm", row["norm"])
            if progress.tokens_per_second is not None:
                tf.summary.scalar("tokens_per_second", progress.tokens_per_second)

    def close(self) -> None:
        with tf.device("/job:localhost"):
            self.writer.close()
