"""The pretraining step beside Hugging Face's and PyTorch's."""

import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from rich.console import Group
from rich.table import Table
from transformers import BertConfig, TFBertForMaskedLM

from benchmarks.measure import Clock, Size, alternating, ratio
from helpers.bert.model import pretraining_model
from helpers.bert.settings import CONFIGURATIONS, Configuration
from helpers.bert.step import adamw, steps_function, training_step
from helpers.text import buckets, corpus, masking

LENGTH = 128
ROWS = 16
STEPS = 4  # per round
LARGE = 1024  # width of matrices whose product runs at this machine's rate
NAMES = ("tiny", "mini")
BESIDE_PYTORCH = (*NAMES, "small")
SMALLEST = 64  # a width below it, of --small, stands for one layer of it
ROOT = pathlib.Path(__file__).parents[1]
PYTORCH = ROOT / "build" / "pytorch" / "bin" / "python"  # made by `make pytorch`


@dataclasses.dataclass(frozen=True)
class Text:
    """Korean sentences as one batch, padded and packed, masked in both ways.

    Attributes:
        padded: Of Hugging Face's model: a sentence per row.
        packed: Of ours: as many sentences as fit.
        same: For the step alone: the packed rows, and the same masks, for Hugging Face's model.
        whole: The padded rows for our step, with the head at every place.
        vocabulary: Number of tokens.
    """

    padded: dict[str, np.ndarray]
    packed: dict[str, np.ndarray]
    same: dict[str, np.ndarray]
    whole: dict[str, np.ndarray]
    vocabulary: int


def sentences(paragraphs: int) -> list[str]:
    """Cut the shipped Korean paragraphs after full stops and marks."""
    lines = corpus.read(pathlib.Path(corpus.shipped()["ko"]))[:paragraphs]
    return [part for line in lines for part in re.split(r"(?<=[.!?]) +", line) if part]


def read(paragraphs: int) -> Text:
    """Make the batches: sentences drawn once, the same in every run."""
    tokenizer = corpus.load_tokenizer()
    texts = sentences(paragraphs)
    texts = [texts[at] for at in np.random.default_rng(0).permutation(len(texts))]
    ids = tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    lengths = np.array([len(row) for row in ids])
    places = max(1, round(masking.RATE * LENGTH))
    special = tuple(tokenizer.all_special_ids)
    masks = masking.Masking(len(tokenizer), tokenizer.mask_token_id, special, places)

    def masked(rows: np.ndarray) -> dict[str, np.ndarray]:
        drawn = masks(tf.constant(rows), masking.draw(0, 0, 0))
        return {name: value.numpy() for name, value in drawn.items()}

    def everywhere(batch: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, np.ndarray]:
        labels = np.full(mask.shape, buckets.IGNORED_LABEL, np.int32)
        used = np.where(batch["masked_weights"] > 0, batch["masked_ids"], buckets.IGNORED_LABEL)
        np.put_along_axis(labels, batch["masked_positions"], used, axis=1)
        mask = np.minimum(mask, 1).astype(np.int32)
        return {"input_ids": batch["input_ids"], "attention_mask": mask, "labels": labels}

    alone = np.zeros((ROWS, LENGTH), np.int32)
    for row, tokens in zip(alone, ids, strict=False):
        row[: len(tokens)] = tokens
    packing = buckets.pack(lengths, LENGTH)
    full = np.resize(np.arange(len(packing.rows)), ROWS)
    rows, segments, positions = (
        values[full].astype(np.int32)
        for values in (
            packing.lay_out(np.concatenate(ids).astype(np.int32)),
            packing.segment_ids(),
            packing.position_ids(),
        )
    )
    drawn = masked(rows)
    padded = everywhere(masked(alone), alone > 0)
    every = np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1))
    whole = {
        "input_ids": padded["input_ids"],
        "attention_mask": padded["attention_mask"],
        "position_ids": every,
        "masked_positions": every,
        "masked_ids": np.maximum(padded["labels"], 0),
        "masked_weights": (padded["labels"] >= 0).astype(np.float32),
    }
    return Text(
        padded,
        drawn | {"attention_mask": segments, "position_ids": positions},
        everywhere(drawn, segments),
        whole,
        len(tokenizer),
    )


def configuration(size: Configuration, vocabulary: int) -> BertConfig:
    """Give Hugging Face's name for a size."""
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
    )


def hugging_face(size: Configuration, vocabulary: int) -> TFBertForMaskedLM:
    """Make Hugging Face's model, compiled by XLA, with the same optimizer as ours."""
    model = TFBertForMaskedLM(configuration(size, vocabulary))
    model.build_in_name_scope()
    optimizer = tf.keras.optimizers.AdamW(1e-4, 0.01, epsilon=1e-6, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["LayerNorm", "bias"])
    model.compile(optimizer, jit_compile=True)
    return model


def usual(model: TFBertForMaskedLM, batch: dict) -> Callable[[], object]:
    """Make a round of `fit`."""
    dataset = tf.data.Dataset.from_tensors(batch).repeat(STEPS)
    return lambda: model.fit(dataset, verbose=0)


def ours(
    size: Configuration, text: Text, batch: dict, steps_per_execution: int = 1
) -> Callable[[], object]:
    """Make a round of our steps; one for each call from Python is what `fit` does."""
    model = pretraining_model(size, text.vocabulary)
    step = training_step(model, adamw(model, 1e-4))
    run = steps_function(tf.distribute.get_strategy(), step)
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())

    def steps() -> None:
        for number in range(0, STEPS, steps_per_execution):
            outcome = run(iterator, number, steps_per_execution)
            float(outcome.loss[-1])  # fit's progress waits for the loss, too

    return steps


def sizes(size: Size, names: Sequence[str] = NAMES) -> dict[str, Configuration]:
    """Give the models to measure."""
    if size.width < SMALLEST:
        return {"1 layer": Configuration(1, size.width, 1)}
    return {name: CONFIGURATIONS[name] for name in names}


def operations(size: Configuration, vocabulary: int, batch: dict[str, np.ndarray]) -> int:
    """Count what the matrix products of a step add and multiply, forward and backward.

    Where the batch names its masked positions, the last layer and the head are computed there
    alone; keys and values of the last layer are needed everywhere.
    """
    rows, length = batch["input_ids"].shape
    everywhere = rows * length
    some = rows * batch["masked_positions"].shape[1] if "masked_positions" in batch else everywhere
    hidden = size.hidden

    def layer(queries: int) -> int:
        projected = 2 * everywhere + 2 * queries  # keys, values; queries, output
        inside = 8 * queries  # two products with four times as many columns
        return (projected + inside) * hidden**2 + 2 * queries * length * hidden

    layers = (size.layers - 1) * layer(everywhere) + layer(some)
    head = some * hidden * (hidden + vocabulary)
    return 3 * 2 * (layers + head)


def product(width: int) -> Callable[[], object]:
    """Make a product of large float32 matrices, eager: what this machine can do at best."""
    one = tf.random.normal([width, width])
    return lambda: float((one @ one)[0, 0])


def table_of_pairs(
    table: Table,
    ways: Callable[[Configuration], dict[str, tuple[dict, Callable[[], object]]]],
    size: Size,
    done: Callable[[], None],
    vocabulary: int = 0,
) -> Table:
    """Measure ways to do a step: each second one is compared with the one before it.

    Args:
        table: To add to.
        ways: Gives a batch and a round of steps by name, for a size of model.
        size: How much is measured.
        done: Called after each round.
        vocabulary: Number of tokens; with it, the share of this machine's rate of matrix
            products is told, too. The rate is measured in the same rounds.

    Returns:
        The table.
    """
    table.add_column("size", no_wrap=True)
    table.add_column("step", no_wrap=True)
    for column in ("real tokens", "tokens/s", "×", "× cpu"):
        table.add_column(column, justify="right")
    if vocabulary:
        table.add_column("of GFLOP/s", justify="right")
    for name, model in sizes(size, BESIDE_PYTORCH if vocabulary else NAMES).items():
        all_ways = ways(model)
        calls = {way: call for way, (_, call) in all_ways.items()}
        real = [np.count_nonzero(batch["attention_mask"]) for batch, _ in all_ways.values()]
        if vocabulary:
            calls["product"] = product(LARGE)
        times = alternating(calls, size.step_rounds, done)
        if vocabulary:
            spent = statistics.median(clock.wall for clock in times.pop("product"))
            fastest = 2 * LARGE**3 / spent
        for at, (way, clocks) in enumerate(times.items()):
            base = times[list(calls)[at // 2 * 2]]
            share = real[at] / real[at // 2 * 2]
            wall = statistics.median(clock.wall for clock in clocks)
            cells = [name, way, f"{real[at]:,}", f"{real[at] * STEPS / wall:,.0f}"]
            for kind in ("wall", "cpu"):
                before = [getattr(clock, kind) * share for clock in base]
                cells.append(ratio(before, [getattr(clock, kind) for clock in clocks]))
            if vocabulary:
                counted = STEPS * operations(model, vocabulary, all_ways[way][0])
                cells.append(f"{counted / wall / fastest:.0%} of {fastest / 1e9:.0f}")
            table.add_row(*cells)
    return table


def table_of_steps(text: Text, size: Size, done: Callable[[str, int], None]) -> Table:
    """Measure steps of the same batches, and of the same text in each one's own batches."""
    table = Table(
        title=f"pretraining: one step, {ROWS} rows of {LENGTH}, AdamW, dropout 0.1, XLA, "
        f"{text.vocabulary:,} tokens",
        caption="× is real tokens per second against Hugging Face's fit on the same model size: "
        "median (min–max of the rounds); cpu: the same in processor time. Padded: a Korean "
        "sentence per row. Same rows: both get the packed rows.",
    )

    def ways(model: Configuration) -> dict:
        fitted, masked = hugging_face(model, text.vocabulary), ours(model, text, text.packed)
        return {
            "TFBertForMaskedLM.fit, same rows": (text.same, usual(fitted, text.same)),
            "masked head, same rows": (text.packed, masked),
            "TFBertForMaskedLM.fit, padded": (text.padded, usual(fitted, text.padded)),
            "masked head, packed": (text.packed, masked),
        }

    total = len(sizes(size)) * 4 * size.step_rounds
    return table_of_pairs(table, ways, size, lambda: done("steps", total))


class PyTorch:
    """Steps in PyTorch, in a process of its own: it lives apart from the course's packages."""

    def __init__(self, text: Text, folder: str) -> None:
        path = f"{folder}/batches.npz"
        both = {"padded": text.padded, "packed": text.packed}
        np.savez(path, **{f"{a}/{b}": v for a, batch in both.items() for b, v in batch.items()})
        self.threads = len(os.sched_getaffinity(0))  # as many as TensorFlow takes
        words = [PYTORCH, "-m", "benchmarks.pretraining_pytorch", path, str(self.threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(words, cwd=ROOT, text=True, **pipes)
        self.version = self._answer()

    def __enter__(self) -> "PyTorch":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # the end of its input ends it

    def _answer(self) -> object:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"The PyTorch process ended with {self.process.wait()}; see above.")
        return json.loads(line)

    def ask(self, **question: object) -> object:
        """Send a question and wait for the answer."""
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def steps(self, size: Configuration, text: Text, way: str) -> Callable[[], Clock]:
        """Make a round of steps, which says how long it took there."""
        config = configuration(size, text.vocabulary).to_diff_dict()
        number = self.ask(way=way, config=config)
        return lambda: Clock(*self.ask(steps=STEPS, model=number))


def table_of_pytorch(text: Text, size: Size, done: Callable[[str, int], None]) -> Table | str:
    """Measure steps beside PyTorch's, eager, both without and both with the same tricks."""
    if not PYTORCH.exists():
        return "PyTorch isn't compared: `make pytorch` installs it (some GB, apart from .venv)."
    with tempfile.TemporaryDirectory() as folder, PyTorch(text, folder) as other:
        table = Table(
            title=f"pretraining: one step beside PyTorch {other.version}, eager, "
            f"{other.threads} threads each",
            caption="× is real tokens per second against the line above it: median (min–max of "
            "the rounds). Padded: a Korean sentence per row, the head at every place. Packed: "
            "last layer and head at the masked places alone, on both sides. Ours: "
            f"steps_per_execution={STEPS}, as pretraining runs; eager has no such thing. The last "
            "column: operations of the step's matrix products per second, as a share of what "
            f"TensorFlow's eager product of {LARGE} x {LARGE} matrices does in the same rounds.",
        )

        def ways(model: Configuration) -> dict:
            return {
                "PyTorch, padded": (text.padded, other.steps(model, text, "padded")),
                "our step, padded": (text.whole, ours(model, text, text.whole, STEPS)),
                "PyTorch, packed": (text.packed, other.steps(model, text, "packed")),
                "our step, packed": (text.packed, ours(model, text, text.packed, STEPS)),
            }

        total = len(sizes(size, BESIDE_PYTORCH)) * 5 * size.step_rounds

        def tell() -> None:
            done("steps beside PyTorch", total)

        return table_of_pairs(table, ways, size, tell, text.vocabulary)


def run(size: Size, done: Callable[[str, int], None]) -> Group:
    """Measure and make the tables.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.

    Returns:
        The step's tables.
    """
    text = read(size.paragraphs)
    return Group(table_of_steps(text, size, done), table_of_pytorch(text, size, done))
