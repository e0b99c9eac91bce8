"""BERT's masking for tf.data: vectorised, with static shapes, drawn again at each step.

Source: Devlin et al., "BERT" (https://arxiv.org/abs/1810.04805), section 3.1, task 1; the fixed
number of masked positions is ``max_predictions_per_seq`` of google-research/bert.
"""

import dataclasses

import numpy as np
import tensorflow as tf

RATE = 0.15  # of the ordinary tokens are chosen; of ten of these
TO_MASK = 8  # become [MASK],
TO_RANDOM = 1  # becomes any token, and one stays as it is


def draw(seed: int, epoch: int | tf.Tensor, step: int | tf.Tensor) -> tf.Tensor:
    """Make a seed for one batch's random numbers: a pure function of where the run stands.

    A run resumed at this epoch (from 0, below 2**31) and step (of this epoch, from 0) masks what
    the undisturbed run would have masked. Both may be tensors, inside tf.data. Gives int64, shape
    [2]: a stateless seed; no other (seed, epoch, step) gives the same.
    """
    high = tf.bitwise.left_shift(tf.cast(seed, tf.int64), 31) + tf.cast(epoch, tf.int64)
    return tf.stack([high, tf.cast(step, tf.int64)])


@dataclasses.dataclass(frozen=True)
class Masking:
    """How a batch of token ids is masked.

    Attributes:
        vocabulary: Number of tokens; ids are below it.
        mask_id: The id of ``[MASK]``.
        special_ids: Ids that are never chosen and never drawn: ``tokenizer.all_special_ids``.
        predictions: Masked positions per row, the same for every row, so that shapes stay static.
            Rows in which more would be chosen get this many; positions that a row doesn't need
            weigh 0.
    """

    vocabulary: int
    mask_id: int
    special_ids: tuple[int, ...]
    predictions: int

    @tf.autograph.experimental.do_not_convert  # AutoGraph would take a second to read it
    def __call__(self, ids: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Mask a batch.

        In each row round(0.15 × its ordinary tokens) positions are chosen, at least one where there
        is an ordinary token, at most ``predictions``. Rows may be packed. Runs in tf.data, in a
        graph and under XLA.

        Args:
            ids: int32, shape [rows, length], length at least ``predictions``.
            seed: int64, shape [2], from ``draw``.

        Returns:
            ``input_ids`` int32 [rows, length], masked; ``masked_positions`` int32
            [rows, predictions]; ``masked_ids`` int32 [rows, predictions], the tokens that were
            there; ``masked_weights`` float32 [rows, predictions], 1 where a position is used.
        """
        # Sizes that are known as numbers save their computation in each batch.
        dynamic_rows, dynamic_length = tf.unstack(tf.shape(ids))
        rows = ids.shape[0] or dynamic_rows
        length = ids.shape[1] or dynamic_length

        # Whole numbers from a named algorithm: then tf.data, a graph and XLA draw the same. (Real
        # numbers from the same seed differ under XLA, the default algorithm between devices.)
        def uniform(seed: tf.Tensor, width: int | tf.Tensor, below: int) -> tf.Tensor:
            shape = [rows, width]
            return tf.random.stateless_uniform(shape, seed, 0, below, tf.int32, alg="philox")

        seeds = tf.random.experimental.stateless_split(seed, 3, alg="philox")
        position_seed, choice_seed, token_seed = tf.unstack(seeds)
        is_special = np.isin(np.arange(self.vocabulary), self.special_ids)

        # Choose positions: every row takes the same number, so that shapes are static, and only the
        # first few of them count.
        is_ordinary = tf.gather(~is_special, ids)
        ordinary_in_row = tf.reduce_sum(tf.cast(is_ordinary, tf.float32), 1, keepdims=True)
        share = tf.maximum(tf.round(RATE * ordinary_in_row), 1.0)
        chosen_in_row = tf.minimum(share, ordinary_in_row)
        keys = uniform(position_seed, length, tf.int32.max)
        _, positions = tf.math.top_k(tf.where(is_ordinary, keys, -1), self.predictions)
        is_used = tf.range(self.predictions, dtype=tf.float32)[None] < chosen_in_row

        # Replace the tokens there: of ten, eight by [MASK], one by a random token, one by itself.
        flat_ids = tf.reshape(ids, [-1])
        flat_positions = positions + tf.range(rows)[:, None] * length
        original = tf.gather(flat_ids, flat_positions)
        ordinary_ids = np.flatnonzero(~is_special).astype(np.int32)
        random_index = uniform(token_seed, self.predictions, len(ordinary_ids))
        random_tokens = tf.gather(ordinary_ids, random_index)
        of_ten = uniform(choice_seed, self.predictions, 10)
        replacement = tf.where(of_ten < TO_MASK + TO_RANDOM, random_tokens, original)
        replacement = tf.where(of_ten < TO_MASK, self.mask_id, replacement)
        replacement = tf.where(is_used, replacement, original)

        # Positions of a row are different ones, so no two updates meet.
        index = tf.reshape(flat_positions, [-1, 1])
        updates = tf.reshape(replacement, [-1])
        masked = tf.tensor_scatter_nd_update(flat_ids, index, updates)
        return {
            "input_ids": tf.reshape(masked, [rows, length]),
            "masked_positions": positions,
            "masked_ids": original,
            "masked_weights": tf.cast(is_used, tf.float32),
        }
