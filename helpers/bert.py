"""The model side of packing: Hugging Face's BERT on rows that hold several sequences.

`TFBertForMaskedLM` takes a mask of one number per place and refuses any other. The number of the
place's sequence, as `buckets.packed` gives it, is such a mask, too: this model can read it.
"""

import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM
from transformers.modeling_tf_outputs import TFBaseModelOutputWithPastAndCrossAttentions
from transformers.modeling_tf_utils import unpack_inputs
from transformers.models.bert.modeling_tf_bert import TFBertMainLayer, TFBertMLMHead

from helpers.errors import CourseError

# What BERT itself adds to a forbidden place's score: e to this power is 0 in every float type.
FORBIDDEN = -10_000.0


class WrongMask(CourseError):
    """An attention mask is no table of one number per place."""

    _keras_call_info_injected = True  # Keras makes a RuntimeError of a layer's error without it


class CausalModel(CourseError):
    """A configuration asks for a decoder, which BERT's masking objective excludes."""


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
    ) -> TFBaseModelOutputWithPastAndCrossAttentions | tuple:
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
            ``last_hidden_state``, floats [rows, places, hidden size], and what was asked for.

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
        sequence = tf.convert_to_tensor(attention_mask)
        if sequence.shape.rank != 2:
            raise WrongMask(
                f"An attention mask of shape {tuple(sequence.shape)}.",
                "It must have one number per place, [rows, places]: the number of the sequence "
                "that the place belongs to. Who may attend to whom is computed from it.",
                "Pass the attention_mask of buckets.packed, or an ordinary one of ones and zeros.",
            )
        # Padding attends to padding: a softmax over nothing would not be a number.
        other = tf.not_equal(sequence[:, None, :, None], sequence[:, None, None, :])
        layers = [None] * self.config.num_hidden_layers
        encoded = self.encoder(
            hidden_states=hidden,
            attention_mask=tf.cast(other, hidden.dtype) * FORBIDDEN,
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
        return encoded if return_dict else (encoded[0], None, *encoded[1:])


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
        if config.is_decoder:
            raise CausalModel(
                "The configuration has is_decoder=True.",
                "A masked language model reads in both directions, a decoder in one.",
                "Set is_decoder=False.",
            )
        super().__init__(config, *inputs, **options)
        self.bert = TFPackedBertMainLayer(config, add_pooling_layer=False, name="bert")
        self.mlm = TFBertMLMHead(config, input_embeddings=self.bert.embeddings, name="mlm___cls")
