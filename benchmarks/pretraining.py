"""The pretraining step beside Hugging Face's, and beside PyTorch's."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM

from benchmarks.measure import Clock, alternating, ratio
from helpers.bert.model import pretraining_model
from helpers.bert.settings import CONFIGURATIONS, Configuration
from helpers.bert.step import adamw, steps_function, training_step
from helpers.text import buckets, corpus, masking

LENGTH = 128
ROWS = 16
STEPS = 4  # per round
ROUNDS = 5
IGNORED = -100  # the label that Hugging Face's loss leaves out
ROOT = pathlib.Path(__file__).parents[1]
PYTORCH = ROOT / "build" / "pytorch" / "bin" / "python"  # made by `make libraries`

# A batch and a round of steps, by name.
Ways = dict[str, tuple[dict[str, np.ndarray], Callable[[], object]]]


@dataclasses.dataclass(frozen=True)
class Text:
    """Korean sentences as one batch, masked, in three forms."""

    padded: dict[str, np.ndarray]  # of Hugging Face's model: a sentence per row
    whole: dict[str, np.ndarray]  # the same for our step, with the head at every place
    packed: dict[str, np.ndarray]  # of ours: as many sentences as fit
    vocabulary: int  # number of tokens


def sentences(paragraphs: int) -> list[str]:
    """Cut the shipped Korean paragraphs after full stops and marks."""
    lines = corpus.read(pathlib.Path(corpus.shipped()["ko"]))[:paragraphs]
    parts = []
    for line in lines:
        parts += re.split(r"(?<=[.!?]) +", line)
    return list(filter(None, parts))


def read(paragraphs: int) -> Text:
    """Make the batches: sentences drawn once, the same in every run."""
    tokenizer = corpus.load_tokenizer()
    texts = sentences(paragraphs)
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = [texts[index] for index in order]
    ids = tokenizer(shuffled, truncation=True, max_length=LENGTH)["input_ids"]
    masks = masking.Masking(
        vocabulary=len(tokenizer),
        mask_id=tokenizer.mask_token_id,
        special_ids=tuple(tokenizer.all_special_ids),
        predictions=max(1, round(masking.RATE * LENGTH)),
    )

    def masked(rows: np.ndarray) -> dict[str, np.ndarray]:
        batch = masks(tf.constant(rows), masking.draw(0, 0, 0))
        return {name: value.numpy() for name, value in batch.items()}

    # A sentence per row, for Hugging Face's model: labels at every position.
    padded = np.zeros((ROWS, LENGTH), np.int32)
    for row, tokens in zip(padded, ids, strict=False):
        row[: len(tokens)] = tokens
    batch = masked(padded)
    is_used = batch["masked_weights"] > 0
    labels = np.full(padded.shape, IGNORED, np.int32)
    label_values = np.where(is_used, batch["masked_ids"], IGNORED)
    np.put_along_axis(labels, batch["masked_positions"], label_values, axis=1)
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": (padded > 0).astype(np.int32),
    }
    # The same for our step, with the head at every position.
    positions = np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1))
    every_position = {
        "position_ids": positions,
        "masked_positions": positions,
        "masked_ids": np.maximum(labels, 0),
        "masked_weights": (labels >= 0).astype(np.float32),
    }
    # As many sentences as fit into each row.
    packing = buckets.pack([len(row) for row in ids], LENGTH)
    rows = np.resize(np.arange(len(packing.rows)), ROWS)  # again from the first, if too few
    packed_ids = packing.lay_out(np.concatenate(ids).astype(np.int32))
    packed = masked(packed_ids[rows]) | {
        "attention_mask": packing.segment_ids()[rows],
        "position_ids": packing.position_ids()[rows],
    }
    return Text(
        padded=inputs | {"labels": labels},
        whole=inputs | every_position,
        packed=packed,
        vocabulary=len(tokenizer),
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


def ours(size: Configuration, text: Text, batch: dict) -> Callable[[], object]:
    """Make a round of our steps, in one call from Python as pretraining makes it."""
    model = pretraining_model(size, text.vocabulary)
    step = training_step(model, adamw(model, 1e-4))
    run = steps_function(tf.distribute.get_strategy(), step)
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: float(run(iterator, 0, STEPS).loss[-1])


class PyTorch:
    """Steps in PyTorch, in another process: it isn't among the course's packages."""

    def __init__(self, text: Text, folder: str) -> None:
        np.savez(f"{folder}/batch.npz", **text.padded)
        self.vocabulary = text.vocabulary
        threads = str(len(os.sched_getaffinity(0)))  # as many as TensorFlow takes
        batch = f"{folder}/batch.npz"
        self.process = subprocess.Popen(
            [PYTORCH, "-m", "benchmarks.pretraining_pytorch", batch, threads],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "PyTorch":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # the end of its input ends it

    def ask(self, question: object) -> object:
        """Send a question and wait for the answer."""
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"The PyTorch process ended with {self.process.wait()}; see above.")
        return json.loads(line)

    def steps(self, size: Configuration) -> Callable[[], Clock]:
        """Make a round of steps, which says how long it took there."""
        number = self.ask(configuration(size, self.vocabulary).to_diff_dict())
        return lambda: Clock(*self.ask([number, STEPS]))


def rows(name: str, ways: Ways, rounds: int) -> Iterator[dict[str, str]]:
    """Measure ways to do a step; write real tokens per second, and ratios to the first two."""
    times = alternating({way: call for way, (_, call) in ways.items()}, rounds)
    tokens = {way: np.count_nonzero(batch["attention_mask"]) for way, (batch, _) in ways.items()}
    baselines = [way for way in times if not way.startswith("ours")]
    for way, clocks in times.items():
        wall = statistics.median([clock.wall for clock in clocks])
        speed = tokens[way] * STEPS / wall
        row = {"size": name, "step": way, "tokens/s": f"{speed:,.0f}"}
        for baseline in baselines:
            # What the baseline would take for as many tokens.
            share = tokens[way] / tokens[baseline]
            title = baseline.partition(",")[0]
            for kind in ("wall", "cpu"):
                baseline_seconds = [getattr(clock, kind) * share for clock in times[baseline]]
                seconds = [getattr(clock, kind) for clock in clocks]
                row[f"× {title}, {kind}"] = ratio(baseline_seconds, seconds)
        yield row


def run(small: bool) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Measure; give the title and the rows of a table."""
    text = read(30 if small else 10**6)
    table = []
    sizes = {name: CONFIGURATIONS[name] for name in ("tiny", "mini", "small")}
    rounds = ROUNDS
    if small:
        sizes = {"1 layer": Configuration(1, 16, 1)}
        rounds = 1
    with contextlib.ExitStack() as stack:
        pytorch = None
        if PYTORCH.exists():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            pytorch = stack.enter_context(PyTorch(text, folder))
        for name, size in sizes.items():
            model = hugging_face(size, text.vocabulary)
            ways = {"Hugging Face's fit, padded": (text.padded, usual(model, text.padded))}
            if pytorch:
                ways["PyTorch, padded"] = (text.padded, pytorch.steps(size))
            ways["ours, padded"] = (text.whole, ours(size, text, text.whole))
            ways["ours, packed"] = (text.packed, ours(size, text, text.packed))
            table += rows(name, ways, rounds)
    title = f"a step, {ROWS} rows of {LENGTH}, AdamW, dropout 0.1, real tokens per second"
    if not pytorch:
        title += " (`make libraries` installs PyTorch, apart; then it is compared)"
    yield title, table
