"""Time reading and masking records against Hugging Face's script for TPU."""

import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator

import tensorflow as tf
from rich.table import Table
from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

from benchmarks.measure import Size, alternating, ratio
from benchmarks.prepare import FEATURES, LENGTH, usual
from helpers.text import corpus, masking, records

BATCH = 256
BATCHES = 150
OURS = "helpers.text.records"
WORDS = "helpers.text.records, whole words"
USUAL = "Hugging Face's TPU script"


def usual_read(path: str, tokenizer: BertTokenizerFast, batch: int) -> tf.data.Dataset:
    """Read and mask as `run_mlm.py` of transformers' language-modeling-tpu does."""
    spec = {name: tf.io.FixedLenFeature([LENGTH], tf.int64) for name in FEATURES}
    collator = DataCollatorForLanguageModeling(tokenizer, return_tensors="tf")

    def mask(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = rows["input_ids"]
        special = (ids == tokenizer.cls_token_id) | (ids == tokenizer.sep_token_id)
        ids, labels = collator.tf_mask_tokens(
            ids,
            vocab_size=len(tokenizer),
            mask_token_id=tokenizer.mask_token_id,
            special_tokens_mask=special | ~tf.cast(rows["attention_mask"], tf.bool),
        )
        return rows | {"input_ids": ids, "labels": labels}

    auto = tf.data.AUTOTUNE
    rows = tf.data.TFRecordDataset(tf.io.gfile.glob(f"{path}/*"), num_parallel_reads=auto).repeat()
    rows = rows.map(lambda record: tf.io.parse_single_example(record, spec), auto)
    return rows.shuffle(2**14).batch(batch, drop_remainder=True).map(mask, auto).prefetch(auto)


def run(size: Size, done: Callable[[str, int], None]) -> Table:
    """Measure and make the table.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.
    """
    tokenizer = corpus.load_tokenizer()
    special = tuple(tokenizer.all_special_ids)
    tokens = masking.Masking(len(tokenizer), tokenizer.mask_token_id, special, 20)
    continued = masking.continuations(tokenizer.get_vocab())
    words = masking.Masking(len(tokenizer), tokenizer.mask_token_id, special, 20, continued)
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text.txt")
        shipped = [corpus.read(pathlib.Path(path)) for path in corpus.shipped().values()]
        lines = [line for some in shipped for line in some[: size.paragraphs]]
        text.write_text("\n".join(lines), "utf-8")
        usual(str(text), f"{folder}/lists", 1)
        written = records.write(lines, f"{folder}/rows", tokenizer, sequence_length=LENGTH)
        batch = min(BATCH, written.rows)

        def masked(masks: masking.Masking) -> Iterator:
            def mask(step: tf.Tensor, rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
                return rows | masks(rows["input_ids"], masking.draw(0, 0, step))

            source = records.dataset(written.path, global_batch_size=batch, seed=0)
            return iter(source.enumerate().map(mask))

        def reading(rows: Iterator) -> Callable[[], None]:
            return lambda: [next(rows) for _ in range(BATCHES)] and None

        calls = {
            OURS: reading(masked(tokens)),
            WORDS: reading(masked(words)),
            USUAL: reading(iter(usual_read(f"{folder}/lists", tokenizer, batch))),
        }
        times = alternating(calls, size.rounds, lambda: done("reading", 3 * size.rounds))
    table = Table(
        title=f"records: read, shuffle, parse and mask batches of {batch} rows of {LENGTH}, median",
        caption="×: how many times faster the first line is, median (min–max of the rounds).",
    )
    for column in ("way", "tokens per second", "×", "× cpu"):
        table.add_column(column, no_wrap=True)
    for way, clocks in times.items():
        rate = BATCHES * batch * LENGTH / statistics.median(clock.wall for clock in clocks)
        table.add_row(
            way,
            f"{rate:,.0f}",
            ratio([c.wall for c in clocks], [c.wall for c in times[OURS]]),
            ratio([c.cpu for c in clocks], [c.cpu for c in times[OURS]]),
        )
    return table
