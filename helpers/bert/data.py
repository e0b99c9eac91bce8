"""The data of a run: records, how they are masked, and how frequent their tokens are."""

import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from helpers.text import corpus, documents, masking, records

VERIFIED = 2**28  # bytes that are read in a second or two
ROWS = 10_000  # maximum number of rows that tokens are counted in


@dataclasses.dataclass(frozen=True)
class Data:
    """Records to train on, and how they are masked."""

    manifest: records.Manifest
    masks: masking.Masking


def read(path: str | os.PathLike[str]) -> Data:
    """Find records in a folder here or ``gs://``, and the way to mask them.

    Raises:
        ShardDamaged: A shard was exchanged; compared where they are below ``VERIFIED``.
        CourseError: There are no finished records, or as `records.tokenizer_of`.
    """
    manifest = records.manifest(path)
    tokenizer = records.tokenizer_of(manifest)
    # Shards of the right size may have been exchanged; large ones are told by their sizes alone.
    if manifest.bytes < VERIFIED:
        records.verify(manifest.path)
    masks = masking.Masking(
        vocabulary=manifest.settings.vocabulary,
        mask_id=tokenizer.token_to_id("[MASK]"),
        special_ids=tuple(map(tokenizer.token_to_id, corpus.SPECIAL)),
        predictions=max(1, round(masking.RATE * manifest.settings.sequence_length)),
    )
    return Data(manifest, masks)


def prepare_shipped(output: str | os.PathLike[str], sequence_length: int = 128) -> str:
    """Write the course's own text as records, its held-out paragraphs apart, as `prepare` does.

    What is finished in ``output``, a folder here or ``gs://``, is kept. Gives it; errors
    as of `corpus.kept_tokenizer` and `records.write`.
    """
    manifest = records.write(
        documents.shipped(),
        output,
        corpus.kept_tokenizer(),
        sequence_length=sequence_length,
        shards=2,
        held_out=True,
    )
    return manifest.path


def sequences(manifest: records.Manifest) -> Iterator[np.ndarray]:
    """Unpack the first ``ROWS`` rows: token ids of each sequence, with ``[CLS]`` and ``[SEP]``."""
    rows = records.first_rows(manifest, ROWS)
    for ids, segment_ids in zip(rows["input_ids"], rows["attention_mask"], strict=True):
        for segment in range(1, int(segment_ids.max()) + 1):
            yield ids[segment_ids == segment]


def unigram(data: Data) -> tuple[np.ndarray, float]:
    """Say how well a guess is that knows how frequent each token is and reads no context.

    Tokens that masking may choose are counted in the first ``ROWS`` rows. Gives the logarithm of
    each token's share, float64 [vocabulary], no token being impossible (one more of each is
    counted); and the mean loss of guessing so, in nats per token.
    """
    # Documents were distributed over the shards at random: the first rows are a fair sample.
    ids = records.first_rows(data.manifest, ROWS)["input_ids"]
    counts = np.bincount(ids.ravel(), minlength=data.masks.vocabulary)
    counts[list(data.masks.special_ids)] = 0
    smoothed = counts + 1
    scores = np.log(smoothed / smoothed.sum())
    loss = -(counts * scores).sum() / counts.sum()
    return scores, float(loss)
