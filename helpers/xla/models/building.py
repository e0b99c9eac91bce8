"""The models of transformers in tiny, with what they are given. Imports TensorFlow."""

import dataclasses
import functools
import inspect
import pathlib
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig, TFPreTrainedModel

_KINDS = re.compile(r"transformers\.models\.(?:deprecated\.)?(\w+)\.")


@functools.cache
def _tiny() -> dict[str, Any]:
    return tomllib.loads(pathlib.Path(__file__).with_name("tiny.toml").read_text("utf-8"))


def kind_of(model: type) -> str:
    """Name the folder of ``transformers/models`` that a class stands in: ``bert``."""
    return _KINDS.match(model.__module__)[1]


def classes() -> list[tuple[str, str]]:
    """List the TensorFlow model classes that transformers exports: kind and name, sorted.

    Those without a ``call`` of their own (``TFBertPreTrainedModel``) are no models, but what models
    have in common.
    """
    names = [name for name in dir(transformers) if name.startswith("TF")]
    found = {name: getattr(transformers, name) for name in names}
    return sorted(
        (kind_of(it), name)
        for name, it in found.items()
        if isinstance(it, type)
        and issubclass(it, TFPreTrainedModel)
        and it.call is not TFPreTrainedModel.call
    )


def _configured(kind: type[PretrainedConfig], chosen: dict[str, Any]) -> PretrainedConfig:
    """Make a configuration, tiny to its last part."""
    given = {k: v for k, v in chosen.items() if k not in ("inputs", "parts")}
    if not kind.has_no_defaults_at_init:
        known = kind().to_dict()
        given = {k: v for k, v in _tiny()["every"].items() if k in known} | given
        for name, part in kind.sub_configs.items():
            given[name] = _configured(part, chosen.get(name, {})).to_dict()
    for name, part in chosen.get("parts", {}).items():
        model_type = part.removesuffix("_decoder")
        mine = _tiny()["types"].get(part, {})
        given[name] = _configured(CONFIG_MAPPING[model_type], mine).to_dict()
    return kind(**given)


def _spec(name: str, text: Any) -> Any:
    """Read ``int32[2, 16]``; a list of such texts is a list of them, a truth value itself."""
    if isinstance(text, list):
        return [_spec(name, each) for each in text]
    if isinstance(text, bool):
        return text
    dtype, sizes = re.fullmatch(r"(\w+)\[([\d, ]*)\]", text).groups()
    return tf.TensorSpec([int(n) for n in sizes.split(",")], dtype, name)


@dataclasses.dataclass(frozen=True)
class Tiny:
    """A tiny model of random weights."""

    model: TFPreTrainedModel  # the model, a Keras model
    # Specs of what its forward step is given, by the names that its ``call`` has.
    inputs: dict[str, Any]
    labels: dict[str, Any]  # specs, or truth values, of what its training step is given besides

    def forward(self, inputs: dict[str, Any]) -> list[tf.Tensor]:
        """Compute all that the model gives back, as in inference."""
        return list(_tensors(self.model(**inputs, training=False)))

    def training(self, inputs: dict[str, Any]) -> list[tf.Tensor]:
        """Compute the loss and the gradient of each weight.

        Where the model computes no loss itself, the mean square of its first result stands for one.
        """
        fixed = {k: v for k, v in self.labels.items() if isinstance(v, bool)}
        with tf.GradientTape() as tape:
            result = self.model(**inputs, **fixed, training=True)
            loss = getattr(result, "loss", None)
            if loss is None:
                loss = next(x for x in _tensors(result) if x.dtype.is_floating) ** 2
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        return [loss, *(tf.convert_to_tensor(g) for g in gradients if g is not None)]

    @property
    def examples(self) -> dict[str, Any]:
        """Specs of all that the training step is given."""
        return self.inputs | {k: v for k, v in self.labels.items() if not isinstance(v, bool)}


def _tensors(result: Any) -> Iterator[tf.Tensor]:
    """List the tensors of a result, however deep; what isn't there is left out."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for part in result:
            yield from _tensors(part)
    elif result is not None:
        yield tf.convert_to_tensor(result)


def _inputs(model: TFPreTrainedModel, chosen: dict[str, Any]) -> dict[str, Any]:
    """Give sizes to the model's own signature, and put what was chosen beside it."""
    sizes = _tiny()["sizes"]
    found = {}
    try:
        signature = model.input_signature
    except NotImplementedError:  # images without a size in the configuration, and sounds
        signature = {}
    for name, spec in signature.items():
        shape = spec.shape.as_list()
        unknown = [i for i, size in enumerate(shape) if size is None]
        for i in unknown:
            shape[i] = sizes["between"]
        shape[unknown[-1]] = sizes["length"]
        shape[unknown[0]] = sizes["batch"]
        found[name] = tf.TensorSpec(shape, spec.dtype, name)
    found |= {name: _spec(name, text) for name, text in chosen.items()}
    return {name: spec for name, spec in found.items() if spec is not False}


def build(name: str) -> Tiny:
    """Build a model, such as ``TFBertModel``, with random weights from a fixed seed.

    Raises:
        ImportError: A package that it needs isn't installed.
    """
    tiny = _tiny()
    tf.keras.utils.set_random_seed(0)
    kind = getattr(transformers, name)
    chosen = tiny["types"].get(kind_of(kind), {})
    part = kind.config_class.base_config_key  # of a model that is a part: "vision_config"
    model = kind(_configured(kind.config_class, chosen.get(part, chosen)))
    model.build_in_name_scope()
    inputs = _inputs(model, chosen.get("inputs", {}) | tiny["classes"].get(name, {}))
    taken = inspect.signature(model.call).parameters
    labels = {k: v for k, v in tiny["labels"].items() if k in taken and k not in inputs}
    if "labels" in labels:
        ends = (v for end, v in tiny["labels_of"].items() if name.endswith(end))
        labels["labels"] = next(ends, labels["labels"])
    return Tiny(model, inputs, {k: _spec(k, v) for k, v in labels.items()})
