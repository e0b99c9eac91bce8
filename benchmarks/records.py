"""Time writing, reading and masking records against Hugging Face's scripts for TPU."""

import importlib.util
import itertools
import pathlib
import re
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator

import datasets
import numpy as np
import tensorflow as tf
from rich.table import Table
from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

from benchmarks.algorithms import Task, ratios
from benchmarks.measure import Size, alternating
from helpers.text import corpus, masking, records

LENGTH = 128
BATCH = 256
BATCHES = 150
OURS = "helpers.text.records"
WORDS = "helpers.text.records, whole words"
MASKS = "helpers.text.masking"
FEATURES = ("input_ids", "attention_mask")


def texts(limit: int) -> list[str]:
    """Collect real text: the shipped paragraphs, and the docstrings of TensorFlow and Keras."""
    shipped = [corpus.read(pathlib.Path(path)) for path in corpus.shipped().values()]
    found = set()
    for package, folder in (("tensorflow", "python/ops"), ("keras", "")):
        root = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
        for path in sorted((root / folder).rglob("*.py")):
            for docstring in re.findall(r'"""(.*?)"""', path.read_text("utf-8"), re.DOTALL):
                found.update(map(corpus.clean, docstring.split("\n\n")))
    long_enough = sorted(text for text in found if len(text) > 30)
    return [text for some in (*shipped, long_enough) for text in some[:limit]]


def usual_write(some: list[str], tokenizer: BertTokenizerFast, path: str) -> datasets.Dataset:
    """Write as transformers' `prepare_tfrecord_shards.py` does; give the tokenized texts."""

    def group_texts(batch: dict[str, list]) -> dict[str, list]:
        joined = {name: list(itertools.chain(*rows)) for name, rows in batch.items()}
        whole = len(joined["input_ids"]) // LENGTH * LENGTH
        starts = range(0, whole, LENGTH)
        return {k: [v[start : start + LENGTH] for start in starts] for k, v in joined.items()}

    dataset = datasets.Dataset.from_dict({"text": some})
    tokenized = dataset.map(lambda b: tokenizer(b["text"]), batched=True, remove_columns=["text"])
    with tf.io.TFRecordWriter(path) as file:
        for row in tokenized.map(group_texts, batched=True):
            lists = {name: tf.train.Int64List(value=row[name]) for name in FEATURES}
            feature = {
                name: tf.train.Feature(int64_list=numbers) for name, numbers in lists.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            file.write(example.SerializeToString())
    return tokenized


def usual_read(path: str, tokenizer: BertTokenizerFast) -> tf.data.Dataset:
    """Read and mask as `run_mlm.py` of transformers' language-modeling-tpu does."""
    spec = {name: tf.io.FixedLenFeature([LENGTH], tf.int64) for name in FEATURES}
    collator = DataCollatorForLanguageModeling(tokenizer, return_tensors="tf")

    def mask(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        special = (
            ~tf.cast(batch["attention_mask"], tf.bool)
            | (batch["input_ids"] == tokenizer.cls_token_id)
            | (batch["input_ids"] == tokenizer.sep_token_id)
        )
        batch["input_ids"], batch["labels"] = collator.tf_mask_tokens(
            batch["input_ids"],
            vocab_size=len(tokenizer),
            mask_token_id=tokenizer.mask_token_id,
            special_tokens_mask=special,
        )
        return batch

    rows = tf.data.TFRecordDataset([path], num_parallel_reads=tf.data.AUTOTUNE).repeat()
    rows = rows.map(
        lambda record: tf.io.parse_single_example(record, spec),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    rows = rows.shuffle(2**14).batch(BATCH, drop_remainder=True)
    return rows.map(mask, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def collated(tokenizer: BertTokenizerFast, rows: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    """Mask rows from memory with the collator for NumPy, for ever."""
    collator = DataCollatorForLanguageModeling(tokenizer, return_tensors="np", seed=0)
    features = [{"input_ids": row} for row in rows.astype(np.int64)]
    while True:
        yield collator(features)


def reading(rows: Iterator[object]) -> Callable[[], None]:
    """Make a call that takes some batches more."""

    def call() -> None:
        for _ in range(BATCHES):
            next(rows)

    return call


def tasks(limit: int, folder: pathlib.Path) -> list[Task]:
    """Set everything up, and make sure that both sides write the same ids."""
    some, tokenizer = texts(limit), corpus.load_tokenizer()
    tokenizer.model_max_length = 10**9  # else each long text would be warned about
    lists, rows = str(folder / "lists.tfrecord"), folder / "rows"
    tokenized = usual_write(some, tokenizer, lists)
    written = records.write(some, rows, tokenizer, sequence_length=LENGTH, shards=1)
    encode = records.Encoder(tokenizer)
    ours = [
        np.frombuffer(encode.cls + ids + encode.sep, encode.type).tolist() for ids in encode(some)
    ]
    assert ours == tokenized["input_ids"][:]

    def write() -> None:
        shutil.rmtree(rows)
        records.write(some, rows, tokenizer, sequence_length=LENGTH, shards=1)

    batch = min(BATCH, written.rows)
    special = tuple(tokenizer.all_special_ids)
    tokens = masking.Masking(len(tokenizer), tokenizer.mask_token_id, special, 20)
    words = masking.Masking(
        len(tokenizer),
        tokenizer.mask_token_id,
        special,
        20,
        masking.continuations(tokenizer.get_vocab()),
    )

    def masked(masks: masking.Masking, source: tf.data.Dataset) -> Iterator[dict[str, tf.Tensor]]:
        def mask(step: tf.Tensor, some: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return some | masks(some["input_ids"], masking.draw(0, 0, step))

        return iter(source.enumerate().map(mask))

    source = records.dataset(rows, global_batch_size=batch, seed=0)
    one = next(iter(source))
    ids = np.asarray(one["input_ids"])
    collator = collated(tokenizer, ids)
    memory = tf.data.Dataset.from_tensors({"input_ids": one["input_ids"]}).repeat()
    work = BATCHES * batch * LENGTH
    script, numpy_collator = "Hugging Face's TPU script", "Hugging Face's collator, NumPy"
    fixed, free = "15 % in each row, places listed", "15 % on average, all places"
    return [
        Task(
            f"write rows of {LENGTH}, one process",
            {OURS: write, script: lambda: usual_write(some, tokenizer, lists)},
            sum(len(text.encode()) for text in some),
            "bytes of text",
            {
                OURS: f"the same ids, {written.tokens / written.rows / LENGTH:.1%} tokens",
                script: "sequences cut and mixed",
            },
        ),
        Task(
            "read, shuffle, parse, mask",
            {
                OURS: reading(masked(tokens, source)),
                WORDS: reading(masked(words, source)),
                script: reading(iter(usual_read(lists, tokenizer))),
                f"{numpy_collator}, rows in memory": reading(collator),
            },
            work,
            "tokens",
            {
                OURS: fixed,
                WORDS: "whole words, up to 15 %",
                script: free,
                f"{numpy_collator}, rows in memory": free,
            },
        ),
        Task(
            "mask rows in memory",
            {MASKS: reading(masked(tokens, memory)), numpy_collator: reading(collator)},
            work,
            "tokens",
            {MASKS: fixed, numpy_collator: free},
        ),
    ]


def run(size: Size, done: Callable[[str, int], None]) -> Table:
    """Measure and make the table.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.

    Returns:
        One row per task and way.
    """
    table = Table(
        title=f"records: rows of {LENGTH}, batches of {BATCH}, median of {size.rounds}",
        caption="×: how many times faster the first line of the task is, median (min–max of the "
        "rounds). Text: the shipped one and the docstrings of TensorFlow and Keras. The usual ways "
        "are written after transformers 4, examples/tensorflow/language-modeling-tpu.",
    )
    table.add_column("task")
    table.add_column("way", no_wrap=True)
    table.add_column("reached")
    for column in ("per second", "×", "× cpu"):
        table.add_column(column, justify="right")
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        every = tasks(size.paragraphs, pathlib.Path(folder))
        total = size.rounds * sum(len(task.calls) for task in every)
        for task in every:
            times = alternating(task.calls, size.rounds, lambda name=task.name: done(name, total))
            first = next(iter(times))
            for way, clocks in times.items():
                rate = task.work / statistics.median(clock.wall for clock in clocks)
                cells = [task.results[way], f"{rate:,.0f} {task.unit}"]
                cells += ["", ""] if way == first else ratios(clocks, times[first])
                table.add_row(task.name if way == first else "", way, *cells)
    return table
