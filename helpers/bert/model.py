"""BERT for pretraining: Hugging Face's model on packed rows, its sizes, and dropout that resumes.

`TFBertForMaskedLM` takes a mask with one number per position and refuses any other. The number of
the position's sequence, as a packed batch gives it, is also such a mask: these models read it.
"""

import contextlib
import contextvars
import zlib
from collections.abc import Iterator

import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM
from transformers.modeling_tf_outputs import TFBaseModelOutput
from transformers.models.bert.modeling_tf_bert import TFBertLayer, TFBertMainLayer, TFBertMLMHead

from helpers.bert.settings import Configuration

# What BERT itself adds to a forbidden position's score: e to this power is 0 in every float type.
FORBIDDEN = -10_000.0
# What Hugging Face's layers ask for and a masked language model has no use for.
NOTHING = {"head_mask": None, "past_key_value": None, "output_attentions": False}
NO_ENCODER = {"encoder_hidden_states": None, "encoder_attention_mask": None}


class TFPackedBertMainLayer(TFBertMainLayer):
    """BERT without a head, for packed rows; see `TFPackedBertForMaskedLM`."""

    def call(
        self,
        input_ids: tf.Tensor | None = None,
        attention_mask: tf.Tensor | None = None,
        token_type_ids: tf.Tensor | None = None,
        position_ids: tf.Tensor | None = None,
        inputs_embeds: tf.Tensor | None = None,
        training: bool = False,
        **_: object,
    ) -> TFBaseModelOutput:
        """Encode every position, and give ``last_hidden_state`` [rows, length, hidden size].

        ``attention_mask`` holds the number of the position's sequence, 0 on padding,
        [rows, length]; without it a row is one sequence. ``position_ids`` restart in each sequence;
        without them they count along the row, which is wrong for its second sequence. Other
        arguments of `TFBertMainLayer.call` are ignored.
        """
        hidden = self.embeddings(
            input_ids, position_ids, token_type_ids, inputs_embeds, training=training
        )
        if attention_mask is None:
            attention_mask = tf.ones(tf.shape(hidden)[:2], tf.int32)
        hidden = self._apply(self.encoder.layer, hidden, attention_mask, training)
        return TFBaseModelOutput(hidden)

    def _apply(
        self, layers: list[TFBertLayer], hidden: tf.Tensor, segment_ids: tf.Tensor, training: bool
    ) -> tf.Tensor:
        bias = _attention_bias(segment_ids, segment_ids, hidden.dtype)
        for layer in layers:
            outputs = layer(hidden, bias, training=training, **NO_ENCODER, **NOTHING)
            hidden = outputs[0]
        return hidden

    def encode_chosen(
        self, chosen: tf.Tensor, attention_mask: tf.Tensor, *, training: bool, **inputs: tf.Tensor
    ) -> tf.Tensor:
        """Encode some positions of each row: those that a head will read.

        The last layer is computed at these positions alone; they attend to all others as ever. The
        result is `call`'s at these positions, but for dropout, which is drawn for fewer values.

        ``chosen`` are positions in the row, int32 [rows, chosen]; other arguments are as for
        `call`. Gives floats [rows, chosen, hidden size].
        """
        # All layers but the last need every position: others attend to it.
        *lower_layers, top_layer = self.encoder.layer
        hidden = self.embeddings(**inputs, training=training)
        hidden = self._apply(lower_layers, hidden, attention_mask, training)
        # Queries of the chosen, keys and values of all: what Hugging Face calls cross attention.
        chosen_hidden = tf.gather(hidden, chosen, batch_dims=1)
        chosen_segments = tf.gather(attention_mask, chosen, batch_dims=1)
        attention = top_layer.attention(
            chosen_hidden,
            None,
            encoder_hidden_states=hidden,
            encoder_attention_mask=_attention_bias(chosen_segments, attention_mask, hidden.dtype),
            training=training,
            **NOTHING,
        )
        attended = attention[0]
        intermediate = top_layer.intermediate(attended)
        return top_layer.bert_output(intermediate, attended, training=training)


def _attention_bias(queries: tf.Tensor, keys: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Give what is added to attention scores, [rows, 1, queries, keys], from segment ids."""
    # Padding attends to padding: a softmax over nothing would not be a number.
    is_other_segment = tf.not_equal(queries[:, None, :, None], keys[:, None, None, :])
    return tf.cast(is_other_segment, dtype) * FORBIDDEN


class TFPackedBertForMaskedLM(TFBertForMaskedLM):
    """`TFBertForMaskedLM` whose attention mask may number the sequences of a row.

    ``attention_mask`` holds 1, 2, ... on the sequences of a row and 0 on padding, and
    ``position_ids`` restart in each, as in packed rows. A token attends to its
    own sequence alone, so it gets what it would get in a separate row. A mask of ones and zeros
    is one sequence per row. ``from_pretrained`` reads a `TFBertForMaskedLM`, and the reverse.

    A row may be longer than ``max_position_embeddings``; its sequences may not.
    """

    def __init__(self, config: BertConfig, *inputs: object, **options: object) -> None:
        super().__init__(config, *inputs, **options)
        self.bert = TFPackedBertMainLayer(config, add_pooling_layer=False, name="bert")
        self.mlm = TFBertMLMHead(config, input_embeddings=self.bert.embeddings, name="mlm___cls")


# What dropout is a function of, apart from the layer: seed, step, number of the batch's first row.
# Each replica is traced in its own thread, where a context variable has its own value.
_dropout_at: contextvars.ContextVar[tuple[int, tf.Tensor, tf.Tensor] | None]
_dropout_at = contextvars.ContextVar("dropout_at", default=None)


@contextlib.contextmanager
def dropout_at(seed: int, step: tf.Tensor | int, first_row: tf.Tensor | int = 0) -> Iterator[None]:
    """Say where in the run the model is called: this decides which values dropout drops.

    ``seed`` is the run's, 0 to 2**32 - 1; ``step`` counts the steps done before, int64;
    ``first_row`` is the number of the batch's first row in the global batch, int64.
    """
    token = _dropout_at.set((seed, tf.cast(step, tf.uint64), tf.cast(first_row, tf.uint64)))
    try:
        yield
    finally:
        _dropout_at.reset(token)


class Dropout(tf.keras.layers.Layer):
    """Dropout as a pure function of (seed, layer, step, row): nothing of it needs to be saved.

    Keras draws from state that no checkpoint holds, so a resumed run drops other values. Here each
    row has its own keys, a block of one stream of Philox 4x32-10 (Salmon et al., "Parallel
    random numbers: as easy as 1, 2, 3", 2011): replicas draw what one machine would draw for their
    rows. Within the row a value's number is mixed with the keys, by two rounds of the 32-bit hash
    "lowbias32" (Wellons, https://github.com/skeeto/hash-prospector), which XLA fuses into the
    multiplication: drawing all the bits from Philox took twice as long.

    Args:
        rate: Share of values that become 0; the others are divided by ``1 - rate``.
        number: Number of the layer in its model.
    """

    def __init__(self, rate: float, number: int) -> None:
        super().__init__()
        # Of the 2^32 numbers that may be drawn for a value, those below it leave the value.
        self.threshold = 2**32 - round(rate * 2**32)
        self.number = number

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Drop values of a batch: floats [rows, ...], all sizes but the first known.

        Raises `ValueError`: Called for training outside of `dropout_at`.
        """
        if not training or self.threshold == 2**32:
            return inputs
        place = _dropout_at.get()
        if place is None:
            raise ValueError(
                "dropout is a function of seed and step: call the model inside "
                "`with model.dropout_at(seed, step):`, or make it with dropout=0"
            )
        seed, step, first_row = place
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.stack([tf.shape(inputs)[0], 4]),  # a block of the stream is 128 bits
            key=tf.constant([seed << 32 | self.number], tf.uint64),
            counter=tf.stack([first_row, step]),
            alg=tf.constant(1),  # tf.random.Algorithm.PHILOX
            dtype=tf.uint32,
        )
        rank = len(inputs.shape)
        ones = [1] * (rank - 1)
        keys = tf.reshape(bits, [-1, 4, *ones])
        # A value's number in its row, by a sum of short ranges: a long one would be kept in memory.
        number = tf.zeros([1] * rank, tf.uint32)
        for axis, length in enumerate(inputs.shape[1:], 1):
            along = tf.reshape(tf.range(length), [-1, *ones[axis:]])
            number = number * length + tf.cast(along, tf.uint32)
        # Two rounds of lowbias32, each with another key.
        mixed = number + keys[:, 0]
        mixed = (mixed ^ tf.bitwise.right_shift(mixed, 16)) * 0x7FEB352D ^ keys[:, 1]
        mixed = (mixed ^ tf.bitwise.right_shift(mixed, 15)) * 0x846CA68B
        scale = tf.cast(2**32 / self.threshold, inputs.dtype)
        return tf.where(mixed < self.threshold, inputs * scale, 0)


def pretraining_model(
    size: Configuration,
    vocabulary: int,
    *,
    longest: int = 512,
    dropout: float = 0.1,
    seed: int = 0,
    precision: str = "float32",
) -> TFPackedBertForMaskedLM:
    """Make a BERT with fresh weights, ready for `step.training_step`.

    Weights are drawn as in the paper (a normal distribution with deviation 0.02, cut at two
    deviations), as a pure function of the seed. With several replicas, call it in their scope.

    Args:
        size: From `CONFIGURATIONS`, or your own.
        vocabulary: Number of tokens.
        longest: Length of the longest sequence.
        dropout: Share of hidden values and of attention dropped in training.
        seed: Of the weights.
        precision: ``float32``, or ``mixed_bfloat16`` for a TPU: weights alone in float32.
    """
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        max_position_embeddings=longest,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    # The policy is global and read where a layer is made, so it is set for that time only.
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(precision)
    try:
        model = TFPackedBertForMaskedLM(config)
        model.build_in_name_scope()
        _replace_dropout(model, dropout)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    _draw_weights(model, seed, config.initializer_range)
    return model


def _replace_dropout(model: tf.keras.Model, rate: float) -> None:
    """Put `Dropout` in the place of Keras' own, numbered in the order of the layers."""
    number = 0
    for layer in model.submodules:
        if isinstance(getattr(layer, "dropout", None), tf.keras.layers.Dropout):
            layer.dropout = Dropout(rate, number)
            number += 1


def _draw_weights(model: tf.keras.Model, seed: int, deviation: float) -> None:
    for weight in model.trainable_variables:
        if is_bias_or_norm(weight):
            continue
        # By its name, without the model's own (a second model of a process is numbered): the
        # same weight with the same seed is the same, whatever other weights there are.
        _, _, name = weight.name.partition("/")
        key = tf.constant([seed, zlib.crc32(name.encode())], tf.int64)
        values = tf.random.stateless_truncated_normal(
            weight.shape, key, stddev=deviation, alg="philox"
        )
        weight.assign(values)


def is_bias_or_norm(weight: tf.Variable) -> bool:
    """Tell whether a weight is a bias or of a layer norm: it starts at 0 or 1 and never decays."""
    return "LayerNorm" in weight.name or "bias" in weight.name
