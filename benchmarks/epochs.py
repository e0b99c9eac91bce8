"""Train a small BERT on the shipped text, compilations included, with four kinds of batches."""

import dataclasses
import pathlib
import statistics
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from rich.table import Table
from transformers import BertConfig, TFBertForMaskedLM

from benchmarks.measure import Clock, Size, ratio, turns
from helpers.bert.model import TFPackedBertForMaskedLM
from helpers.text import buckets, corpus
from helpers.xla.compilations import count_compilations

LENGTH = 128  # BERT's length for nine of ten steps of its pretraining; longer ones are cut
ROWS = 32
PLACES = ROWS * LENGTH  # at most, in every batch of every way
BASELINE = "multiple of 32"


@dataclasses.dataclass(frozen=True)
class Text:
    """The shipped text, masked once, the same for all.

    Attributes:
        dataset: One paragraph per element, ``input_ids`` and ``labels``; cut to ``LENGTH``.
        lengths: Tokens of each paragraph.
        vocabulary: Number of tokens.
    """

    dataset: tf.data.Dataset
    lengths: np.ndarray
    vocabulary: int


@dataclasses.dataclass(frozen=True)
class Run:
    """One training from the first call to the end of each epoch.

    Attributes:
        ends: Time from the start to the end of each epoch.
        compilations: Programs that XLA compiled, counted by its profiler.
        steps: Per epoch.
    """

    ends: tuple[Clock, ...]
    compilations: int
    steps: int


def read(paragraphs: int) -> Text:
    """Tokenize and mask the shipped text."""
    tokenizer = corpus.load_tokenizer()
    texts = [
        line
        for path in corpus.shipped().values()
        for line in corpus.read(pathlib.Path(path))[:paragraphs]
    ]
    ids = tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    lengths = np.array([len(row) for row in ids])
    tokens = np.concatenate(ids).astype(np.int32)
    masked = np.random.default_rng(0).random(len(tokens)) < 0.15
    masked &= ~np.isin(tokens, tokenizer.all_special_ids)
    features = {
        "input_ids": np.where(masked, tokenizer.mask_token_id, tokens).astype(np.int32),
        "labels": np.where(masked, tokens, -100).astype(np.int32),
    }
    ragged = {k: tf.RaggedTensor.from_row_lengths(v, lengths) for k, v in features.items()}
    return Text(tf.data.Dataset.from_tensor_slices(ragged), lengths, len(tokenizer))


def multiple_of_32(text: Text) -> tf.data.Dataset:
    """Batch as `DataCollatorWithPadding(pad_to_multiple_of=32)` does, in tf.data alone."""
    fill = {"input_ids": 0, "attention_mask": 0, "labels": buckets.IGNORED_LABEL}

    def pad(batch: dict) -> dict:
        rows, places = tf.unstack(tf.shape(batch["input_ids"]))
        missing = [[0, ROWS - rows], [0, -places % 32]]
        return {k: tf.pad(v, missing, constant_values=fill[k]) for k, v in batch.items()}

    dataset = text.dataset.map(lambda x: x | {"attention_mask": tf.ones_like(x["input_ids"])})
    dataset = dataset.shuffle(len(text.lengths), seed=0)
    shapes = {name: [None] for name in fill}
    return dataset.padded_batch(ROWS, shapes, fill).map(pad).prefetch(tf.data.AUTOTUNE)


def step_function(
    model: TFBertForMaskedLM, dataset: tf.data.Dataset
) -> Callable[[dict], tf.Tensor]:
    """Make a fresh training step: traced once, compiled by XLA for each shape."""
    # The older Adam: half as many operations, so a compilation takes a sixth less, for all alike.
    optimizer = tf.keras.optimizers.legacy.Adam(1e-3)

    @tf.autograph.experimental.do_not_convert
    def step(batch: dict) -> tf.Tensor:
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        labels = batch["labels"]
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True).logits
            counts = tf.cast(labels >= 0, logits.dtype)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
            loss = tf.math.divide_no_nan(tf.reduce_sum(losses * counts), tf.reduce_sum(counts))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    some = {k: tf.TensorSpec([None, None], s.dtype) for k, s in dataset.element_spec.items()}
    return tf.function(step, input_signature=[some], jit_compile=True)


def make_model(kind: type[TFBertForMaskedLM], vocabulary: int, width: int) -> TFBertForMaskedLM:
    """Make a BERT of one layer, with its weights."""
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=max(1, width // 64),
        intermediate_size=4 * width,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = kind(config)
    model(np.ones((1, 4), np.int32))
    return model


def train(model: TFBertForMaskedLM, dataset: tf.data.Dataset, epochs: int) -> Run:
    """Train, and read the clocks after each epoch."""
    step, ends = step_function(model, dataset), []
    with count_compilations() as compilations:
        start = Clock.now()
        for _ in range(epochs):
            losses = [step(batch) for batch in dataset]
            float(losses[-1])  # waits for the device
            ends.append(Clock.now().since(start))
    assert np.isfinite(losses).all()
    return Run(tuple(ends), compilations.count, len(losses))


def costs(text: Text, width: int) -> tuple[float, float]:
    """Measure what `choose_edges` asks for: seconds per compilation, and per place of a step."""
    model = make_model(TFBertForMaskedLM, text.vocabulary, width)
    batches = [
        next(iter(buckets.bucketed(text.dataset, [LENGTH], **how).dataset))
        for how in ({"global_batch_size": ROWS // 2}, {"global_batch_size": ROWS})
    ]
    step = step_function(model, tf.data.Dataset.from_tensors(batches[0]))
    times = []
    for batch in (batches[0], *[batches[1]] * 4):
        start = Clock.now()
        float(step(batch))
        times.append(Clock.now().since(start).wall)
    _, first, *later = times  # the very first also traces
    per_step = statistics.median(later)
    return first - per_step, per_step / PLACES


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to make batches.

    Attributes:
        dataset: Its batches, at most ``PLACES`` places each.
        model: The class that reads them.
        epochs: To train.
        short: Whether the first epoch counts as the short run.
        real: Share of places that hold a real token.
    """

    dataset: tf.data.Dataset
    model: type[TFBertForMaskedLM]
    epochs: int
    short: bool
    real: float


def ways(text: Text, size: Size) -> dict[str, Way]:
    """Make the batches of each way; edges are chosen from costs measured here."""
    compiling, per_place = costs(text, size.width)

    def optimal(epochs: int) -> Way:
        edges = buckets.choose_edges(text.lengths, compiling, per_place, epochs).edges
        batches = buckets.bucketed(text.dataset, edges, batch_tokens=PLACES, remainder="pad")
        return Way(batches.dataset, TFBertForMaskedLM, epochs, epochs == 1, batches.efficiency)

    whole = {"global_batch_size": ROWS, "remainder": "pad"}
    longest = buckets.bucketed(text.dataset, [LENGTH], **whole)
    rows = buckets.packed(text.dataset, LENGTH, **whole)
    multiple = multiple_of_32(text)
    places = sum(int(np.size(batch["input_ids"])) for batch in multiple)
    real = text.lengths.sum() / places
    return {
        "maximum": Way(longest.dataset, TFBertForMaskedLM, 1, True, longest.efficiency),
        BASELINE: Way(multiple, TFBertForMaskedLM, size.epochs, True, real),
        "optimal edges, short": optimal(1),
        "optimal edges, long": optimal(size.epochs),
        "packed": Way(rows.dataset, TFPackedBertForMaskedLM, size.epochs, True, rows.efficiency),
    }


def run(size: Size, done: Callable[[str, int], None]) -> Table:
    """Measure and make the table.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.

    Returns:
        One row per way, the short and the long run beside each other.
    """
    text = read(size.paragraphs)
    every = ways(text, size)
    runs = {name: [] for name in every}
    for _, name in turns(list(every), size.epoch_rounds):
        way = every[name]
        model = make_model(way.model, text.vocabulary, size.width)
        runs[name].append(train(model, way.dataset, way.epochs))
        done(name, len(every) * size.epoch_rounds)

    tokens = int(text.lengths.sum())
    table = Table(
        title=f"epochs: BERT of 1 layer, {size.width} wide, {tokens:,} real tokens per epoch of "
        f"Korean and English, compilations included, median of {size.epoch_rounds}",
        caption=f"short: 1 epoch; long: {size.epochs} epochs, really run. × is real tokens per "
        f"second against {BASELINE}: median (min–max of the rounds); cpu: the same in processor "
        f"time. Every batch has at most {PLACES:,} places.",
    )
    table.add_column("batches", no_wrap=True)
    for column in ("real", "steps", "compiled"):
        table.add_column(column, justify="right")
    for length in ("short", "long"):
        for column in ("tokens/s", "×", "× cpu"):
            table.add_column(f"{length} {column}", justify="right")
    for name, way in every.items():
        first = runs[name][0]
        cells = [f"{way.real:.1%}", f"{first.steps}"]
        cells.append(", ".join(sorted({f"{r.compilations}" for r in runs[name]})))
        for epochs, wanted in ((1, way.short), (size.epochs, way.epochs == size.epochs)):
            if not wanted:
                cells += ["", "", ""]
                continue
            mine, usual = ([r.ends[epochs - 1] for r in runs[which]] for which in (name, BASELINE))
            wall = statistics.median(clock.wall for clock in mine)
            cells.append(f"{tokens * epochs / wall:,.0f}")
            for kind in ("wall", "cpu"):
                cells.append(ratio(*([getattr(c, kind) for c in x] for x in (usual, mine))))
        table.add_row(name, *cells)
    return table
