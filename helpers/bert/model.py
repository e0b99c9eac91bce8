"""BERT for pretraining: Hugging Face's model on packed rows, and the training step.

`TFBertForMaskedLM` takes a mask of one number per place and refuses any other. The number of the
place's sequence, as `buckets.packed` gives it, is such a mask, too: the models here can read it.

The step computes the last layer and the scores of the vocabulary at the masked places only, divides
the loss by the number of masked tokens of all replicas, and draws dropout from (seed, layer, step,
row): so it gives the same on one replica or eight, in one piece or accumulated, and after a resume.
"""

import contextlib
import contextvars
import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM, TFBertForPreTraining
from transformers.modeling_tf_outputs import TFBaseModelOutputWithPoolingAndCrossAttentions
from transformers.modeling_tf_utils import unpack_inputs
from transformers.models.bert.modeling_tf_bert import (
    TFBertMainLayer,
    TFBertMLMHead,
    TFBertNSPHead,
)

from helpers.base.errors import CourseError

Batch = Mapping[str, tf.Tensor]

# What BERT itself adds to a forbidden place's score: e to this power is 0 in every float type.
FORBIDDEN = -10_000.0


class WrongMask(CourseError):
    """An attention mask is no table of one number per place."""

    _keras_call_info_injected = True  # Keras makes a RuntimeError of a layer's error without it


class CausalModel(CourseError):
    """A configuration asks for a decoder, which BERT's masking objective excludes."""


class UnknownConfiguration(CourseError):
    """No model size has this name."""


class DropoutWithoutPlace(CourseError):
    """A model of `pretraining_model` was called for training outside of `place`."""

    _keras_call_info_injected = True


class CantSplit(CourseError):
    """The rows of a replica can't be divided into equal parts."""


def _refuse_decoder(config: BertConfig) -> None:
    if config.is_decoder:
        raise CausalModel(
            "The configuration has is_decoder=True.",
            "A masked language model reads in both directions, a decoder in one.",
            "Set is_decoder=False.",
        )


class TFPackedBertMainLayer(TFBertMainLayer):
    """BERT without a head, for packed rows; see `TFPackedBertForMaskedLM`."""

    @unpack_inputs
    def call(
        self,
        input_ids: tf.Tensor | None = None,
        attention_mask: tf.Tensor | None = None,
        token_type_ids: tf.Tensor | None = None,
        position_ids: tf.Tensor | None = None,
        head_mask: None = None,
        inputs_embeds: tf.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        training: bool = False,
    ) -> TFBaseModelOutputWithPoolingAndCrossAttentions | tuple:
        """Encode every place.

        Args:
            input_ids: Token ids, whole numbers, [rows, places].
            attention_mask: Number of the place's sequence, 0 on padding, [rows, places]; all one
                sequence when None.
            token_type_ids: Whole numbers [rows, places]; zeros when None.
            position_ids: Place within the sequence, whole numbers [rows, places]; when None 0, 1,
                2, ... along the row, which is wrong for its second sequence.
            head_mask: Not supported, here as in `TFBertMainLayer`.
            inputs_embeds: Instead of ``input_ids``: floats [rows, places, hidden size].
            output_attentions: Whether to return every layer's attention.
            output_hidden_states: Whether to return every layer's result.
            return_dict: False for a tuple.
            training: Whether dropout is on.

        Returns:
            ``last_hidden_state``, floats [rows, places, hidden size], ``pooler_output`` of each
            row's first place, floats [rows, hidden size] or None, and what was asked for.

        Raises:
            WrongMask: ``attention_mask`` is not 2-D.
            NotImplementedError: ``head_mask`` is given.
        """
        if head_mask is not None:
            raise NotImplementedError("TFBertMainLayer of transformers 4 takes no head_mask")
        hidden = self.embeddings(
            input_ids=input_ids,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            training=training,
        )
        if attention_mask is None:
            attention_mask = tf.ones(tf.shape(hidden)[:2], tf.int32)
        sequence = _checked(attention_mask)
        layers = [None] * self.config.num_hidden_layers
        encoded = self.encoder(
            hidden_states=hidden,
            attention_mask=_between(sequence, sequence, hidden.dtype),
            head_mask=layers,
            encoder_hidden_states=None,
            encoder_attention_mask=None,
            past_key_values=layers,
            use_cache=False,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=return_dict,
            training=training,
        )
        pooled = None if self.pooler is None else self.pooler(hidden_states=encoded[0])
        if not return_dict:
            return encoded[0], pooled, *encoded[1:]
        return TFBaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=encoded[0],
            pooler_output=pooled,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )

    def encode_chosen(
        self, chosen: tf.Tensor, attention_mask: tf.Tensor, *, training: bool, **inputs: tf.Tensor
    ) -> tf.Tensor:
        """Encode some places of each row: those that a head will read.

        The last layer is computed at these places alone; they attend to all others as ever. The
        result is `call`'s at these places, but for dropout, which is drawn for fewer values.

        Args:
            chosen: Places, int32 [rows, chosen].
            attention_mask: As for `call`.
            training: Whether dropout is on.
            inputs: What the embeddings take: as for `call`.

        Returns:
            Floats [rows, chosen, hidden size].

        Raises:
            WrongMask: ``attention_mask`` is not 2-D.
        """
        sequence = _checked(attention_mask)
        hidden = self.embeddings(**inputs, training=training)
        options = {"head_mask": None, "past_key_value": None, "output_attentions": False}
        options["training"] = training
        everywhere = _between(sequence, sequence, hidden.dtype)
        *layers, last = self.encoder.layer
        for layer in layers:
            hidden = layer(
                hidden,
                attention_mask=everywhere,
                encoder_hidden_states=None,
                encoder_attention_mask=None,
                **options,
            )[0]
        # The places' queries, all places' keys and values: what Hugging Face calls cross attention.
        attended = last.attention(
            tf.gather(hidden, chosen, batch_dims=1),
            attention_mask=None,
            encoder_hidden_states=hidden,
            encoder_attention_mask=_between(
                tf.gather(sequence, chosen, batch_dims=1), sequence, hidden.dtype
            ),
            **options,
        )[0]
        return last.bert_output(last.intermediate(attended), attended, training=training)


def _checked(attention_mask: tf.Tensor) -> tf.Tensor:
    sequence = tf.convert_to_tensor(attention_mask)
    if sequence.shape.rank != 2:
        raise WrongMask(
            f"An attention mask of shape {tuple(sequence.shape)}.",
            "It must have one number per place, [rows, places]: the number of the sequence "
            "that the place belongs to. Who may attend to whom is computed from it.",
            "Pass the attention_mask of buckets.packed, or an ordinary one of ones and zeros.",
        )
    return sequence


def _between(queries: tf.Tensor, keys: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Give what is added to attention scores, [rows, 1, queries, keys]."""
    # Padding attends to padding: a softmax over nothing would not be a number.
    other = tf.not_equal(queries[:, None, :, None], keys[:, None, None, :])
    return tf.cast(other, dtype) * FORBIDDEN


class TFPackedBertForMaskedLM(TFBertForMaskedLM):
    """`TFBertForMaskedLM` whose attention mask may number the sequences of a row.

    ``attention_mask`` holds 1, 2, ... on the sequences of a row and 0 on padding, and
    ``position_ids`` restart in each, as in the batches of `buckets.packed`. A token attends to its
    own sequence alone, so it gets what it would get in a row of its own. An ordinary mask of ones
    and zeros is one sequence per row: the model takes ordinary batches. Weights are the ordinary
    ones: ``from_pretrained`` reads a `TFBertForMaskedLM`, and the reverse.

    A row may be longer than ``max_position_embeddings``; its sequences may not.

    Raises:
        CausalModel: The configuration has ``is_decoder``.
    """

    def __init__(self, config: BertConfig, *inputs: object, **options: object) -> None:
        _refuse_decoder(config)
        super().__init__(config, *inputs, **options)
        self.bert = TFPackedBertMainLayer(config, add_pooling_layer=False, name="bert")
        self.mlm = TFBertMLMHead(config, input_embeddings=self.bert.embeddings, name="mlm___cls")


class TFPackedBertForPreTraining(TFBertForPreTraining):
    """`TFBertForPreTraining`, BERT with both of the paper's heads, for packed rows.

    As `TFPackedBertForMaskedLM`, and a head that says whether the second half of a sequence
    follows the first in the text. Called as it is, it judges each row's first sequence; `losses`
    judges every sequence of the row.

    Raises:
        CausalModel: The configuration has ``is_decoder``.
    """

    def __init__(self, config: BertConfig, *inputs: object, **options: object) -> None:
        _refuse_decoder(config)
        super().__init__(config, *inputs, **options)
        self.bert = TFPackedBertMainLayer(config, name="bert")
        self.nsp = TFBertNSPHead(config, name="nsp___cls")
        self.mlm = TFBertMLMHead(config, input_embeddings=self.bert.embeddings, name="mlm___cls")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The size of a BERT.

    Attributes:
        layers: Encoder layers.
        hidden: Width; the layer inside each encoder layer is four times as wide.
        heads: Of attention, each ``hidden / heads`` wide.
    """

    layers: int
    hidden: int
    heads: int


# The miniatures of google-research/bert (README, "Smaller BERT models", March 2020) and BERT-base
# of the paper: every head is 64 wide.
CONFIGURATIONS = {
    "tiny": Configuration(2, 128, 2),
    "mini": Configuration(4, 256, 4),
    "small": Configuration(4, 512, 8),
    "base": Configuration(12, 768, 12),
}


def configuration(name: str) -> Configuration:
    """Look up a size.

    Args:
        name: ``tiny``, ``mini``, ``small`` or ``base``.

    Returns:
        The size.

    Raises:
        UnknownConfiguration: There is none of this name.
    """
    if name not in CONFIGURATIONS:
        raise UnknownConfiguration(
            f"There is no configuration {name!r}.",
            f"The sizes are {', '.join(CONFIGURATIONS)}.",
            "Take one of them; tiny is the one for a CPU.",
        )
    return CONFIGURATIONS[name]


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where in the run a batch is: its dropout is a function of this and of the layer."""

    seed: int
    step: tf.Tensor
    first_row: tf.Tensor


# Replicas are traced in threads of their own; each has its own value of a context variable.
_place: contextvars.ContextVar[_Place | None] = contextvars.ContextVar("place", default=None)


@contextlib.contextmanager
def place(seed: int, step: tf.Tensor | int, first_row: tf.Tensor | int = 0) -> Iterator[None]:
    """Say where in the run the model is called: this decides which places dropout drops.

    Args:
        seed: Of the run, 0 to 2**32 - 1.
        step: Steps done before this one, int64.
        first_row: Number of the batch's first row in the global batch, int64.
    """
    here = _Place(seed, tf.cast(step, tf.uint64), tf.cast(first_row, tf.uint64))
    token = _place.set(here)
    try:
        yield
    finally:
        _place.reset(token)


class Dropout(tf.keras.layers.Layer):
    """Dropout as a pure function of (seed, layer, step, row): nothing of it needs to be saved.

    Keras's draws from state that no checkpoint holds, so a resumed run drops other places. Here
    each row has its own keys, a block of one stream of Philox 4x32-10 (Salmon et al., "Parallel
    random numbers: as easy as 1, 2, 3", 2011): replicas draw what one machine would draw for their
    rows. Within the row a value's number is mixed with the keys, by two rounds of the 32-bit hash
    "lowbias32" (Wellons, https://github.com/skeeto/hash-prospector), which XLA fuses into the
    multiplication: drawing all the bits from Philox took twice as long.

    Args:
        rate: Share of places that become 0; the others are divided by ``1 - rate``.
        number: Of the layer in its model.
    """

    def __init__(self, rate: float, number: int) -> None:
        super().__init__()
        self.kept = 2**32 - round(rate * 2**32)
        self.number = number

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Drop places of a batch.

        Args:
            inputs: Floats [rows, ...]; all sizes but the first are known.
            training: Whether to drop at all.

        Returns:
            The same shape and type.

        Raises:
            DropoutWithoutPlace: Called for training outside of `place`.
        """
        if not training or self.kept == 2**32:
            return inputs
        here = _place.get()
        if here is None:
            raise DropoutWithoutPlace(
                "The model's dropout does not know where in the run it is.",
                "It is a function of seed, step and row, so that a resumed run drops the same.",
                "Call the model inside `with bert.place(seed, step):`, as training_step does, or "
                "make it with dropout=0.",
            )
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.stack([tf.shape(inputs)[0], 4]),  # a block of the stream is 128 bits
            key=tf.constant([here.seed << 32 | self.number], tf.uint64),
            counter=tf.stack([here.first_row, here.step]),
            alg=tf.constant(1),  # tf.random.Algorithm.PHILOX
            dtype=tf.uint32,
        )
        rank = len(inputs.shape)
        keys = tf.reshape(bits, [-1, 4] + [1] * (rank - 1))
        # A value's number in its row, by a sum of short ranges: a long one would be kept in memory.
        number = tf.zeros([1] * rank, tf.uint32)
        for axis, length in enumerate(inputs.shape[1:], 1):
            along = tf.reshape(
                tf.range(length), [length if at == axis else 1 for at in range(rank)]
            )
            number = number * length + tf.cast(along, tf.uint32)
        mixed = number + keys[:, 0]
        mixed = (mixed ^ tf.bitwise.right_shift(mixed, 16)) * 0x7FEB352D ^ keys[:, 1]
        mixed = (mixed ^ tf.bitwise.right_shift(mixed, 15)) * 0x846CA68B
        kept = mixed < self.kept
        return tf.where(kept, inputs * tf.cast(2**32 / self.kept, inputs.dtype), 0)


def pretraining_model(
    size: Configuration,
    vocabulary: int,
    *,
    longest: int = 512,
    dropout: float = 0.1,
    seed: int = 0,
    next_sentence: bool = False,
    precision: str = "float32",
) -> TFPackedBertForMaskedLM | TFPackedBertForPreTraining:
    """Make a BERT with fresh weights, ready for `training_step`.

    Weights are those of the paper (a normal distribution of deviation 0.02, cut at two of it), as
    a pure function of the seed on every device. On several replicas call it in the strategy's
    scope.

    Args:
        size: From `CONFIGURATIONS`, or your own.
        vocabulary: Number of tokens.
        longest: Places of the longest sequence.
        dropout: Share of hidden values and of attention that is dropped in training.
        seed: Of the weights.
        next_sentence: Whether to have the paper's second head, next sentence prediction. RoBERTa
            (https://arxiv.org/abs/1907.11692, section 4.2) left it out and lost nothing.
        precision: ``float32``, or ``mixed_bfloat16`` for a TPU: computes in bfloat16, keeps the
            weights in float32.

    Returns:
        The model; a batch for it is what `losses` takes.
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
    kind = TFPackedBertForPreTraining if next_sentence else TFPackedBertForMaskedLM
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(precision)
    try:
        model = kind(config)
        model.build_in_name_scope()
        layers = [x for x in model.submodules if isinstance(getattr(x, "dropout", None), _KERAS)]
        for number, layer in enumerate(layers):
            layer.dropout = Dropout(dropout, number)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    for weight in model.trainable_variables:
        if not _is_bias_or_norm(weight.name):
            weight.assign(_cut_normal(weight, seed) * config.initializer_range)
    return model


_KERAS = tf.keras.layers.Dropout


def _cut_normal(weight: tf.Variable, seed: int) -> np.ndarray:
    # By its name, without the model's own (a second model of a process is numbered): the same
    # weight with the same seed is the same, whatever other weights there are.
    name = weight.name.partition("/")[2].encode()
    draw = np.random.default_rng([seed, zlib.crc32(name)])
    values = draw.standard_normal(weight.shape, np.float32)
    while (far := np.abs(values) > 2).any():
        values[far] = draw.standard_normal(far.sum(), np.float32)
    return values


def _is_bias_or_norm(name: str) -> bool:
    return "LayerNorm" in name or "bias" in name


def masked_scores(model: tf.keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
    """Score the vocabulary at the masked places only.

    Args:
        model: From `pretraining_model`.
        batch: ``input_ids``, ``attention_mask``, ``position_ids`` int32 [rows, places] (and
            ``token_type_ids`` where there are pairs); ``masked_positions`` int32
            [rows, predictions].
        training: Whether dropout is on.

    Returns:
        float32 [rows, predictions, vocabulary].
    """
    return _scores(model, _encode(model, batch, batch["masked_positions"], training))


def _encode(model: tf.keras.Model, batch: Batch, chosen: tf.Tensor, training: bool) -> tf.Tensor:
    names = ("input_ids", "attention_mask", "position_ids", "token_type_ids")
    inputs = {name: batch[name] for name in names if name in batch}
    return model.bert.encode_chosen(chosen, training=training, **inputs)


def _scores(model: tf.keras.Model, hidden: tf.Tensor) -> tf.Tensor:
    return tf.cast(model.mlm(hidden), tf.float32)


def counts(batch: Batch) -> tf.Tensor:
    """Count what the losses of `losses` are the means of.

    Args:
        batch: As `losses` takes it.

    Returns:
        float32 [1], the number of masked tokens, or [2] with the number of pairs.
    """
    names = [name for name in ("masked_weights", "pair_weights") if name in batch]
    return tf.stack([tf.reduce_sum(batch[name]) for name in names])


def losses(model: tf.keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
    """Compute the paper's losses, each as a sum over the batch.

    Divide by `counts`, of all replicas' batches together, and add: that is the paper's loss,
    whichever replica has how many masked tokens.

    Args:
        model: From `pretraining_model`.
        batch: As for `masked_scores`, with ``masked_ids`` int32 and ``masked_weights`` float32
            [rows, predictions]. For the next sentence head also ``pair_positions`` int32
            [rows, pairs], the places of [CLS]; ``pair_labels`` int32, 1 where the second half is a
            random one; ``pair_weights`` float32, 0 where a row has fewer pairs.
        training: Whether dropout is on.

    Returns:
        float32 [1] or, with pairs, [2]: sums of cross entropies in nats.
    """
    chosen = [batch[name] for name in ("masked_positions", "pair_positions") if name in batch]
    masked = chosen[0].shape[1]
    hidden = _encode(model, batch, tf.concat(chosen, axis=1), training)
    scores = _scores(model, hidden[:, :masked])
    sums = [_sum(batch["masked_ids"], scores, batch["masked_weights"])]
    if "pair_positions" in batch:
        pooled = model.bert.pooler.dense(hidden[:, masked:])
        scores = tf.cast(model.nsp(pooled), tf.float32)
        sums.append(_sum(batch["pair_labels"], scores, batch["pair_weights"]))
    return tf.stack(sums)


def _sum(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
    return tf.reduce_sum(entropy * weights)


class WarmUpLinearDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """From 0 up to the peak, then down to 0, both in straight lines.

    Args:
        peak: The highest learning rate, of step ``warm_up - 1``.
        warm_up: Steps on the way up, at least 1.
        steps: Of the whole run; the learning rate would be 0 at this one.
    """

    def __init__(self, peak: float, warm_up: int, steps: int) -> None:
        self.peak, self.warm_up, self.steps = peak, warm_up, steps

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Give the learning rate.

        Args:
            step: Steps done so far.

        Returns:
            float32, at least 0.
        """
        done = tf.cast(step, tf.float32)
        up = (done + 1) / self.warm_up
        down = (self.steps - done) / max(1, self.steps - self.warm_up + 1)
        return self.peak * tf.maximum(tf.minimum(up, down), 0)

    def get_config(self) -> dict:
        """Give the arguments."""
        return {"peak": self.peak, "warm_up": self.warm_up, "steps": self.steps}


def adamw(
    model: tf.keras.Model, schedule: WarmUpLinearDecay | float, weight_decay: float = 0.01
) -> tf.keras.optimizers.AdamW:
    """Make BERT's optimizer: AdamW that leaves biases and layer norms undecayed.

    Args:
        model: Whose weights it will change; its state is made here, so that a checkpoint finds it.
        schedule: Learning rates.
        weight_decay: Share of a weight that goes per step and unit of learning rate.

    Returns:
        The optimizer. Numbers as in the paper, appendix A.2, epsilon as in google-research/bert.
    """
    optimizer = tf.keras.optimizers.AdamW(
        schedule, weight_decay, beta_1=0.9, beta_2=0.999, epsilon=1e-6, jit_compile=False
    )
    whole = [weight for weight in model.trainable_variables if _is_bias_or_norm(weight.name)]
    optimizer.exclude_from_weight_decay(var_list=whole)
    optimizer.build(model.trainable_variables)
    return optimizer


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What steps gave.

    Attributes:
        loss: Mean cross entropy per masked token (plus per pair), float32 [steps].
        norm: Of the gradients, before they were clipped, float32 [steps].
        tokens: Places that hold a token, int64 [steps].
    """

    loss: tf.Tensor
    norm: tf.Tensor
    tokens: tf.Tensor


def training_step(
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    *,
    seed: int = 0,
    clip_norm: float = 1.0,
    accumulate: int = 1,
    replicas: int = 1,
    jit: bool = True,
) -> Callable[[Batch, tf.Tensor, tf.Tensor | int], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Make a step to call in a graph: in a ``tf.function``, or in ``strategy.run`` in one.

    Tensors only, nothing rewritten by AutoGraph. With ``jit`` XLA compiles it: with one replica
    all of it, with several what comes before the gradients are summed, because XLA on a CPU or
    GPU can't compile TensorFlow's exchange between replicas. On a TPU leave it off: a TPUStrategy
    compiles by itself.

    Args:
        model: From `pretraining_model`.
        optimizer: From `adamw`.
        seed: Of dropout.
        clip_norm: Longest gradient, over all weights together.
        accumulate: Parts that a replica's batch is divided into, one after the other, to need
            less memory. The step is the same.
        replicas: That take part in a step.
        jit: Whether XLA compiles it.

    Returns:
        A function of (batch, step, replica's number): the batch as `losses` takes it, with the
        replica's rows of the global batch; step int64, of the run, from 0. It updates the weights
        and gives loss, gradient norm (float32) and number of tokens (int64), of all replicas.

    Raises:
        CantSplit: When traced: the rows can't be divided into ``accumulate`` equal parts.
    """
    weights = model.trainable_variables

    def part_of_step(
        batch: Batch, total: tf.Tensor, step: tf.Tensor, first_row: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape, place(seed, step, first_row):
            loss = tf.reduce_sum(tf.math.divide_no_nan(losses(model, batch, True), total))
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def gradients_of(
        batch: Batch, total: tf.Tensor, step: tf.Tensor, replica: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        rows = batch["input_ids"].shape[0]
        first_row = tf.cast(replica, tf.int64) * rows
        if accumulate == 1:
            return part_of_step(batch, total, step, first_row)
        if rows % accumulate:
            raise CantSplit(
                f"{rows} rows on each replica can't be accumulated in {accumulate} parts.",
                "Every part must have as many rows as the others: shapes are static.",
                f"Take a global batch that is a multiple of {accumulate * replicas}.",
            )
        size = rows // accumulate
        parts = {k: tf.reshape(v, [accumulate, size, *v.shape[1:]]) for k, v in batch.items()}

        def add(part: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
            one = {name: values[part] for name, values in parts.items()}
            loss, more = part_of_step(one, total, step, first_row + tf.cast(part, tf.int64) * size)
            return part + 1, *(a + b for a, b in zip(sums, (loss, *more), strict=True))

        zeros = [tf.zeros([]), *(tf.zeros(weight.shape) for weight in weights)]
        _, loss, *gradients = tf.while_loop(
            lambda part, *_: part < accumulate, add, [tf.constant(0), *zeros]
        )
        return loss, gradients

    def update(gradients: list[tf.Tensor]) -> tf.Tensor:
        gradients, norm = tf.clip_by_global_norm(gradients, clip_norm)
        pairs = zip(gradients, weights, strict=True)
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return norm

    def tokens_of(batch: Batch) -> tf.Tensor:
        return tf.math.count_nonzero(batch["attention_mask"])

    def compiled(function: Callable) -> Callable:
        return tf.function(function, jit_compile=jit or None, autograph=False)

    @compiled
    def alone(batch: Batch, step: tf.Tensor, replica: tf.Tensor) -> tuple[tf.Tensor, ...]:
        loss, gradients = gradients_of(batch, counts(batch), step, replica)
        return loss, update(gradients), tokens_of(batch)

    compiled_gradients = compiled(gradients_of)

    def one_of_many(batch: Batch, step: tf.Tensor, replica: tf.Tensor) -> tuple[tf.Tensor, ...]:
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", counts(batch))
        loss, gradients = compiled_gradients(batch, total, step, replica)
        loss, *gradients = context.all_reduce("SUM", [loss, *gradients])
        tokens = context.all_reduce("SUM", tokens_of(batch))
        return loss, update(gradients), tokens

    return alone if replicas == 1 else one_of_many


def steps_function(
    strategy: tf.distribute.Strategy,
    step: Callable[[Batch, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
) -> Callable[[Iterator, int | tf.Tensor, int | tf.Tensor], Outcome]:
    """Make a function of several steps in one call: ``steps_per_execution`` of Keras.

    Python is left once for all of them; on a TPU, where a step can be shorter than Python's part
    of it, this is what keeps the TPU busy.

    Args:
        strategy: Where the step runs.
        step: From `training_step`, with the strategy's number of replicas.

    Returns:
        A function of (iterator, first step, number of steps): the iterator over a dataset that the
        strategy distributes. Traced once for every number of steps.
    """

    def run_replica(batch: Batch, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return step(batch, number, tf.cast(replica, tf.int64))

    def run_one(iterator: Iterator, number: tf.Tensor) -> list[tf.Tensor]:
        results = strategy.run(run_replica, args=(next(iterator), number))
        # The same on all replicas: already of all of them.
        return [strategy.experimental_local_results(result)[0] for result in results]

    @tf.function(autograph=False)
    def run(iterator: Iterator, first: tf.Tensor, count: tf.Tensor) -> list[tf.Tensor]:
        def body(at: tf.Tensor, *arrays: tf.TensorArray) -> tuple:
            results = run_one(iterator, first + at)
            written = [
                array.write(tf.cast(at, tf.int32), result)
                for array, result in zip(arrays, results, strict=True)
            ]
            return at + 1, *written

        arrays = [
            tf.TensorArray(kind, tf.cast(count, tf.int32), element_shape=[])
            for kind in (tf.float32, tf.float32, tf.int64)
        ]
        start = [tf.constant(0, tf.int64), *arrays]
        _, *arrays = tf.while_loop(lambda at, *_: at < count, body, start, parallel_iterations=1)
        return [array.stack() for array in arrays]

    def steps(iterator: Iterator, first: int | tf.Tensor, count: int | tf.Tensor) -> Outcome:
        numbers = (tf.constant(first, tf.int64), tf.constant(count, tf.int64))
        return Outcome(*run(iterator, *numbers))

    return steps
