import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from terminal import call

from benchmarks import algorithms, epochs, fine_tuning, measure, pretraining, published
from benchmarks.measure import Clock
from helpers.text import buckets

pytestmark = pytest.mark.slow

ROWS = (
    *("maximum", "multiple of 32", "optimal edges, short", "optimal edges, long", "packed"),
    *("plain Python", "group_texts", "group_by_length", "bucket_by_sequence_length"),
    *("helpers.text.records", "helpers.text.records, whole words", "Hugging Face's TPU script"),
    *("helpers.text.masking", "Hugging Face's collator, NumPy"),
    *("prepare --workers 2", "Hugging Face's shard script", "the same, datasets.map(num_proc=2)"),
    *(
        "masked head, same rows",
        "masked head, packed",
    ),
)


def bench(*words):
    return call(sys.executable, "-m", "benchmarks", *words)


@pytest.fixture(scope="module")
def small():
    done = bench("--small")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tables_have_every_row_and_say_what_they_were_measured_on(small):
    for row in ROWS:
        assert f"│ {row}" in small
    assert f"TensorFlow {tf.__version__}" in small and "cores" in small
    assert "real tokens per epoch" in small and "median (min–max of the rounds)" in small


def test_pytorch_is_compared_or_the_way_to_it_named(small):
    if pretraining.PYTORCH.exists():
        assert all(f"│ {side}, packed" in small for side in ("PyTorch", "our step"))
    else:
        assert "`make pytorch` installs it" in small


PACKED_IN_PYTORCH = """
import torch
from transformers import BertConfig, BertForMaskedLM
from benchmarks.pretraining_pytorch import packed_loss, padded_loss

torch.manual_seed(0)
size = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
model = BertForMaskedLM(BertConfig(vocab_size=300, initializer_range=0.2, **size)).eval()
lengths, start = (10, 7, 15), 0
alone = {name: torch.zeros(3, 32).long() for name in ("input_ids", "attention_mask", "labels")}
alone["labels"] -= 100
packed = {name: torch.zeros(1, 32).long() for name in ("input_ids", "attention_mask")}
packed |= {"position_ids": torch.zeros(1, 32).long(), "masked_weights": torch.ones(1, 8)}
packed["masked_weights"][0, 6:] = 0
packed |= {name: torch.zeros(1, 8).long() for name in ("masked_positions", "masked_ids")}
for row, length in enumerate(lengths):
    tokens, here = torch.randint(5, 300, (length,)), slice(start, start + length)
    alone["input_ids"][row, :length], alone["attention_mask"][row, :length] = tokens, 1
    packed["input_ids"][0, here], packed["attention_mask"][0, here] = tokens, row + 1
    packed["position_ids"][0, here] = torch.arange(length)
    for at, place in enumerate((1, length - 2), 2 * row):
        alone["labels"][row, place] = packed["masked_ids"][0, at] = 9 + place
        packed["masked_positions"][0, at] = start + place
    start += length
results = []
for loss_of, batch in ((padded_loss, alone), (packed_loss, packed)):
    model.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    results.append([loss.detach(), *(weight.grad for weight in model.parameters())])
for expected, got in zip(*results, strict=True):
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
"""


@pytest.mark.skipif(not pretraining.PYTORCH.exists(), reason="needs PyTorch apart: make pytorch")
def test_pytorch_with_the_same_tricks_computes_the_same_loss_and_gradients():
    done = call(pretraining.PYTORCH, "-c", PACKED_IN_PYTORCH)
    assert done.returncode == 0, done.stderr


def test_published_runs_are_shown_without_compiling_and_written_as_they_are_read(
    tmp_path, monkeypatch
):
    runs = published.calibration.published()
    assert published.run(measure.SMALL, lambda *_: None).row_count == len(runs)
    before = published.calibration.TABLE.read_bytes()
    monkeypatch.setattr(published.calibration, "TABLE", tmp_path / "published.tsv")
    published.write(runs)
    assert published.calibration.TABLE.read_bytes() == before


def test_a_call_in_another_process_gives_its_own_clock():
    assert measure.seconds(lambda: Clock(3.0, 2.0)) == Clock(3.0, 2.0)
    assert measure.seconds(lambda: None).wall >= 0


def test_an_unknown_benchmark_is_refused_and_help_lists_them():
    wrong = bench("epoch")
    assert wrong.returncode == 2 and "none of algorithms, epochs" in wrong.stderr
    shown = bench("--help").stdout
    assert "algorithms or epochs" in shown and "--small" in shown


def test_turns_alternate_and_ratio_and_clock_are_of_each_round():
    assert [name for _, name in measure.turns("ab", 3)] == ["a", "b", "b", "a", "a", "b"]
    assert measure.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == "2.00 (1.00–3.00)"
    assert Clock(5.0, 3.0).since(Clock(1.0, 2.0)) == Clock(4.0, 1.0)


def test_the_plain_references_solve_the_same_problem():
    lengths = algorithms.draw_lengths(300)
    edges = algorithms.reference_edges(lengths.tolist(), 5)
    best = buckets.optimal_edges(lengths, 5, 1)
    assert buckets.measure_edges(lengths, edges).padded_tokens == best.padded_tokens
    rows = algorithms.reference_pack(lengths.tolist(), 512)
    assert sorted(at for row in rows for at in row) == list(range(300))
    assert max(sum(lengths[at] for at in row) for row in rows) <= 512
    order = algorithms.length_grouped(lengths.tolist(), 8)
    assert sorted(order) == list(range(300)) and lengths[order[0]] == lengths.max()


def test_the_baseline_pads_as_hugging_face_does():
    text = epochs.read(40)
    total = 0
    for batch in epochs.multiple_of_32(text):
        ids, mask, labels = (batch[k].numpy() for k in ("input_ids", "attention_mask", "labels"))
        rows = mask.sum(1)
        assert ids.shape == (epochs.ROWS, -(-rows.max() // 32) * 32)
        np.testing.assert_array_equal(mask, np.arange(ids.shape[1]) < rows[:, None])
        assert not ids[mask == 0].any() and (labels[mask == 0] == -100).all()
        total += rows.sum()
    assert total == text.lengths.sum()


def test_what_notebook_10_shows_comes_out_again():
    found = pd.read_csv(fine_tuning.RESULTS, sep="\t", dtype={"labels": str}).set_index(
        ["model", "trained_on", "tested_on", "labels", "seed"]
    )
    assert found.index.is_unique
    names = [each or "all" for each in fine_tuning.LABELS]
    assert set(found.index.get_level_values("labels")) == set(map(str, names))
    train, test = fine_tuning.read()
    known = fine_tuning.few(train, 4, 1)
    for model in ("words", "n-grams"):
        counted = fine_tuning.counting(model).fit(known.ko, known.label)
        scores = fine_tuning.score(test.label, counted.predict(test.ko))
        stored = found.loc[(model, "ko", "ko", "4", 1)]
        assert dict(stored.map("{:.4f}".format)) == scores


@pytest.mark.parametrize("places", [None, 2])
def test_the_operations_of_a_step_are_those_of_its_products(places):
    rows, length, hidden, vocabulary = 3, 5, 4, 7
    batch = {"input_ids": np.zeros((rows, length))}
    if places:
        batch["masked_positions"] = np.zeros((rows, places))
    products = []  # rows, common size, columns of each product, forward
    for queries in (rows * length, rows * (places or length)):  # first layer, last layer
        products += [(rows * length, hidden, hidden)] * 2 + [(queries, hidden, hidden)] * 2
        products += [(queries, hidden, length), (queries, length, hidden)]
        products += [(queries, hidden, 4 * hidden), (queries, 4 * hidden, hidden)]
    head = rows * (places or length)
    products += [(head, hidden, hidden), (head, hidden, vocabulary)]
    forward = sum(2 * a * b * c for a, b, c in products)
    size = pretraining.Configuration(2, hidden, 1)
    # Backward each product becomes two of the same size.
    assert pretraining.operations(size, vocabulary, batch) == 3 * forward
