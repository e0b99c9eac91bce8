"""Published training runs, built again and compiled by Google's compiler.

Each row of ``published.tsv`` says in ``model`` how it is built here: a builder of this file and
its numbers. The step is the usual one of its time (every position of every layer, dropout where the
run had it, clipping, an optimizer with as much state), with the rows that one device had. What was
particular to a run's own code (sharded optimizers, images in another layout) is not built again.
"""

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
import transformers as hf

from benchmarks import blind
from helpers.base import files
from helpers.bert.step import adamw
from helpers.text.corpus import DATA
from tpu_preflight import compiler
from tpu_preflight.estimate import calibration
from tpu_preflight.estimate.calibration import Run
from tpu_preflight.program import Program, export

Loss = Callable[..., tf.Tensor]
# A loss of tensors, the weights that it trains, their optimizer, and what the tensors are.
Job = tuple[Loss, list[tf.Variable], tf.keras.optimizers.Optimizer, tuple[tf.TensorSpec, ...]]

CLIP = 1.0  # norm, of the language models' gradients
TIMEOUT = 3600.0


def _specs(run: Run, **lengths: int) -> tuple[tf.TensorSpec, ...]:
    """Give a tensor of whole numbers for each name, with so many in a row; 0: one number each."""
    specs = []
    for length in lengths.values():
        shape = [run.rows, length] if length else [run.rows]
        specs.append(tf.TensorSpec(shape, tf.int32))
    return tuple(specs)


def _entropy(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    scores = tf.cast(scores, tf.float32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))


def _sizes(layers: int, hidden: int, heads: int, vocabulary: int, dropout: int) -> dict[str, float]:
    return {
        "vocab_size": vocabulary,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "hidden_dropout_prob": dropout / 10,
        "attention_probs_dropout_prob": dropout / 10,
    }


def _words(ids: tf.Tensor, layer: tf.keras.layers.Layer, onehot: int) -> dict[str, tf.Tensor]:
    """Look words up in the table, or multiply it by rows of a one and zeros, as `onehot` says.

    google-research/bert and electra do the latter on a TPU (in both ``run_pretraining.py``:
    ``use_one_hot_embeddings=`` the flag ``use_tpu``; 2026-11). A vocabulary of 32,000 makes that
    a sixth of BERT-base's operations.
    """
    if not onehot:
        return {"input_ids": ids}
    table = layer.embeddings.weight
    rows = tf.tensordot(tf.one_hot(ids, table.shape[0]), table, 1)
    return {"input_ids": None, "inputs_embeds": rows}


def _masked(encoder: tf.keras.layers.Layer, scores: Callable, onehot: int) -> Loss:
    """Make the loss of google-research/bert: encode all, gather the masked, judge the pair."""

    def loss(
        ids: tf.Tensor,
        mask: tf.Tensor,
        kinds: tf.Tensor,
        positions: tf.Tensor,
        labels: tf.Tensor,
        pairs: tf.Tensor,
    ) -> tf.Tensor:
        words = _words(ids, encoder, onehot)
        output = encoder(**words, attention_mask=mask, token_type_ids=kinds, training=True)
        masked = tf.gather(output[0], positions, batch_dims=1)
        word_scores, pair_scores = scores(masked, output[1])
        return _entropy(labels, word_scores) + _entropy(pairs, pair_scores)

    return loss


def bert(run: Run, predictions: int, dropout: int = 1, onehot: int = 0, **sizes: int) -> Job:
    """BERT with both heads; ``dropout`` in tenths, ``onehot`` 1 for words as in `_words`."""
    config = hf.BertConfig(**_sizes(dropout=dropout, **sizes), max_position_embeddings=run.size)
    model = hf.TFBertForPreTraining(config)
    model.build_in_name_scope()

    def heads(words: tf.Tensor, pair: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return model.mlm(words), model.nsp(pair)

    loss = _masked(model.bert, heads, onehot)
    specs = _specs(
        run,
        ids=run.size,
        mask=run.size,
        kinds=run.size,
        positions=predictions,
        labels=predictions,
        pairs=0,
    )
    return loss, model.trainable_variables, adamw(model, 1e-4), specs


def electra(run: Run, predictions: int, part: int, onehot: int = 0, **sizes: int) -> Job:
    """ELECTRA: a generator of 1/``part`` of the width fills masks, a discriminator judges all."""
    fraction = {name: sizes[name] // part for name in ("hidden", "heads")}
    common = {"embedding_size": sizes["hidden"], "max_position_embeddings": run.size}
    generator_sizes = _sizes(dropout=1, **sizes | fraction)
    discriminator_sizes = _sizes(dropout=1, **sizes)
    generator = hf.TFElectraForMaskedLM(hf.ElectraConfig(**generator_sizes | common))
    discriminator = hf.TFElectraForPreTraining(hf.ElectraConfig(**discriminator_sizes | common))
    for model in (generator, discriminator):
        model.build_in_name_scope()
    weights = generator.trainable_variables + discriminator.trainable_variables
    both_models = types.SimpleNamespace(trainable_variables=weights)

    def loss(
        ids: tf.Tensor, mask: tf.Tensor, kinds: tf.Tensor, positions: tf.Tensor, labels: tf.Tensor
    ) -> tf.Tensor:
        options = {"attention_mask": mask, "token_type_ids": kinds, "training": True}
        # The generator scores the masked positions, and a word is drawn for each.
        output = generator.electra(**_words(ids, generator.electra, onehot), **options)
        masked = tf.gather(output[0], positions, batch_dims=1)
        predictions_of_masked = generator.generator_predictions(masked)
        scores = tf.cast(generator.generator_lm_head(predictions_of_masked), tf.float32)
        noise = -tf.math.log(-tf.math.log(tf.random.uniform(scores.shape, 1e-9, 1 - 1e-7)))
        words = tf.argmax(tf.stop_gradient(scores) + noise, -1, tf.int32)
        # The discriminator judges which words aren't the original ones.
        rows = tf.repeat(tf.range(run.rows), predictions)
        index = tf.stack([rows, tf.reshape(positions, [-1])], -1)
        replaced_ids = tf.tensor_scatter_nd_update(ids, index, tf.reshape(words, [-1]))
        is_replaced = tf.cast(tf.not_equal(replaced_ids, ids), tf.float32)
        replaced_words = _words(replaced_ids, discriminator.electra, onehot)
        judgements = tf.cast(discriminator(**replaced_words, **options).logits, tf.float32)
        judge_loss = tf.nn.sigmoid_cross_entropy_with_logits(is_replaced, judgements)
        return _entropy(labels, scores) + 50 * tf.reduce_mean(judge_loss)

    specs = _specs(
        run,
        ids=run.size,
        mask=run.size,
        kinds=run.size,
        positions=predictions,
        labels=predictions,
    )
    return loss, weights, adamw(both_models, 2e-4), specs


def gpt2(run: Run, layers: int, hidden: int, heads: int, vocabulary: int) -> Job:
    """GPT-2 without dropout."""
    config = hf.GPT2Config(
        vocab_size=vocabulary,
        n_positions=run.size,
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model = hf.TFGPT2LMHeadModel(config)
    model.build_in_name_scope()

    def loss(ids: tf.Tensor) -> tf.Tensor:
        scores = model(input_ids=ids, training=True).logits
        return _entropy(ids[:, 1:], scores[:, :-1])

    return loss, model.trainable_variables, adamw(model, 6e-4), _specs(run, ids=run.size)


def _images(run: Run, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer) -> Job:
    def loss(pictures: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        output = model(pictures, training=True)
        scores = getattr(output, "logits", output)  # Hugging Face's has a field
        return _entropy(labels, scores)

    dtype = tf.bfloat16 if run.precision == "bfloat16" else tf.float32
    pictures = tf.TensorSpec([run.rows, run.size, run.size, 3], dtype)
    labels = tf.TensorSpec([run.rows], tf.int32)
    return loss, model.trainable_variables, optimizer, (pictures, labels)


def vit(run: Run, layers: int, hidden: int, heads: int, patch: int) -> Job:
    """Vision Transformer without dropout, as big_vision trains it."""
    sizes = _sizes(layers, hidden, heads, 0, 0)
    sizes.pop("vocab_size")
    config = hf.ViTConfig(**sizes, image_size=run.size, patch_size=patch, num_labels=1000)
    model = hf.TFViTForImageClassification(config)
    model.build_in_name_scope()
    loss, weights, optimizer, specs = _images(run, model, adamw(model, 1e-3))

    def loss_of_channels_last(pictures: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return loss(tf.transpose(pictures, [0, 3, 1, 2]), labels)

    return loss_of_channels_last, weights, optimizer, specs


def resnet(run: Run, blocks: int) -> Job:
    """ResNet-50 as tensorflow/tpu has it: no biases, and strides in the 3 × 3 convolutions.

    That of keras.applications has both otherwise; the gradients of its biases, which the
    normalisation after them makes useless, took 15 % of the estimate on v2.
    """
    layers = tf.keras.layers
    inputs = layers.Input([run.size, run.size, 3])

    def convolved(x: tf.Tensor, filters: int, size: int, strides: int = 1) -> tf.Tensor:
        x = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    x = layers.ReLU()(convolved(inputs, 64, 7, 2))
    x = layers.MaxPool2D(3, 2, padding="same")(x)
    for stage, blocks_of_stage in enumerate((3, 4, blocks, 3)):
        filters = 64 * 2**stage
        for block in range(blocks_of_stage):
            # The first block of a stage changes the number of filters; but for the first stage it
            # also halves the picture.
            strides = 1
            shortcut = x
            if block == 0:
                strides = 1 if stage == 0 else 2
                shortcut = convolved(x, 4 * filters, 1, strides)
            x = layers.ReLU()(convolved(x, filters, 1))
            x = layers.ReLU()(convolved(x, filters, 3, strides))
            x = layers.ReLU()(layers.add([convolved(x, 4 * filters, 1), shortcut]))
    x = layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))
    return _images(run, tf.keras.Model(inputs, x), _momentum())


def _momentum() -> tf.keras.optimizers.Optimizer:
    return tf.keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-4)


def keras(run: Run, **name: int) -> Job:
    """A model of keras.applications, with momentum."""
    (name,) = name
    options = {}
    if name.startswith("ResNetRS"):
        options["include_preprocessing"] = False
    model = getattr(tf.keras.applications, name)(
        weights=None,
        input_shape=(run.size, run.size, 3),
        classifier_activation=None,
        **options,
    )
    return _images(run, model, _momentum())


BUILDERS = {
    "bert": bert,
    "electra": electra,
    "gpt2": gpt2,
    "vit": vit,
    "resnet": resnet,
    "keras": keras,
}


@contextlib.contextmanager
def _computing_in(precision: str) -> Iterator[None]:
    policy = tf.keras.mixed_precision.global_policy()
    if precision == "bfloat16":
        precision = "mixed_bfloat16"
    tf.keras.mixed_precision.set_global_policy(precision)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)


def program(run: Run) -> Program:
    """Build a run's training step for one device, and export it."""
    kind, *words = run.model.split()
    numbers = {}
    for word in words:
        name, _, value = word.partition("=")
        numbers[name] = int(value or 0)
    with _computing_in(run.precision):
        loss, weights, optimizer, specs = BUILDERS[kind](run, **numbers)
        optimizer.build(weights)

        @tf.autograph.experimental.do_not_convert
        def step(*tensors: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                value = loss(*tensors)
            gradients = tape.gradient(value, weights)
            if "onehot" in numbers:  # no row of a table is picked there, so no gradient is sparse
                gradients = list(map(tf.convert_to_tensor, gradients))
            if kind not in ("resnet", "keras"):
                gradients, _ = tf.clip_by_global_norm(gradients, CLIP)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return value

        return export(step, *specs)


def estimated(run: Run) -> Run:
    """Compile a run with full effort, which takes minutes, and fill in estimate and bound.

    Raises:
        CourseError: It doesn't compile.
    """
    if run.model.startswith("maxtext"):
        sys.path.append(str(DATA))
        import maxtext

        return maxtext.estimated(maxtext.counted(run))
    if run.model.startswith("blind "):
        return blind.estimated(run)
    compiled = compiler.compile(program(run), run.target, effort="full", timeout=TIMEOUT)
    return blind.with_estimate(run, compiled)


def write(runs: Iterable[Run]) -> None:
    """Write the table of published runs."""
    names = [field.name for field in dataclasses.fields(Run)]
    rows = [[_cell(getattr(run, name)) for name in names] for run in runs]
    files.write(calibration.TABLE, "".join("\t".join(row) + "\n" for row in [names, *rows]))


def _cell(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def run(small: bool) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Compile all runs, write their estimates into the table, and show it.

    With ``small`` nothing is compiled: the table is shown as it is.
    """
    runs = list(calibration.published())
    if not small:
        for at, one in enumerate(runs):
            runs[at] = estimated(one)
            print(f"{at + 1} of {len(runs)}: {one.run}", file=sys.stderr)
        write(runs)
    columns = ("run", "target", "roofline_ms", "estimate_ms", "published_ms", "ratio")
    rows = [{name: getattr(one, name) for name in columns} for one in runs]
    yield "milliseconds that training runs took, beside the compiler's estimate", rows
