"""A fine-tuning run with Keras' ``fit``, that can be killed and resumed to the same numbers.

Order and dropout are functions of the seed and the step; the state beside that is the weights and
the optimizer's, and a checkpoint holds them.
"""

import dataclasses
import math
import os
import signal
from collections.abc import Callable
from typing import Any

import jinja2
import tensorflow as tf

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert import checkpoints, export
from helpers.bert.fine_tuning import batches, classifier, exported, labelled, settings
from helpers.bert.fine_tuning.evaluation import Evaluation
from helpers.bert.fine_tuning.labelled import Labelled
from helpers.bert.fine_tuning.settings import Settings
from helpers.bert.pretraining import Clock, Kept, Progress, Signals
from helpers.bert.settings import begin
from helpers.text.buckets import Batches

GUESSES = "guesses.tsv"
NO_POOLER = (
    "The pretrained weights have no pooler (a run without next sentence prediction trains none): "
    "it begins fresh, as the classifier does."
)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a call of `run` did."""

    step: int  # steps done since the beginning of the run
    steps: int  # of the whole run
    resumed: int  # the step at which this call began
    stopped: signal.Signals | None  # the signal that ended the call, if one did
    model: tf.keras.Model  # with the weights of the last step
    evaluation: Evaluation | None  # on the test part; None where steps are left


def run(
    wanted: Settings,
    model: str | os.PathLike[str],
    data: Labelled,
    output: str | os.PathLike[str],
    *,
    strategy: tf.distribute.Strategy | None = None,
    save_every: int = 100,
    say: Callable[[str], None] = lambda text: None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Tuned:
    """Fine-tune, from the beginning or from where an earlier run in the same folder ended.

    In the folder: ``settings.json``, ``log.jsonl`` (a line per step), ``checkpoints``; after the
    last step ``guesses.tsv`` (each test text with its guess) and ``model``, which transformers and
    `tpu-course predict` read. Ctrl-C and SIGTERM save after the step and end the call.

    Args:
        wanted: What the numbers depend on.
        model: Folder with a pretrained BERT.
        data: From `labelled.read`.
        output: Folder of this run, on this machine.
        strategy: From ``connection.connect``; this machine as it is where None.
        save_every: Steps from one checkpoint to the next.
        say: Called with each line that a person should read.
        report: Called after each step.

    Raises:
        CourseError: As `settings.check` and `classifier.load`; or the loss is no number.
    """
    found = exported.find(model)
    described = settings.check(wanted, found, data, output)
    folder = Folder(output)
    strategy = strategy or tf.distribute.get_strategy()
    with checkpoints.locked(folder), Signals(say) as signals:
        tokenizer = classifier.tokenizer(found.path)
        made = _batches(found, tokenizer, data, wanted, strategy.num_replicas_in_sync, say)
        steps = wanted.epochs * made.batches
        numbers = described.settings | {"steps": steps}
        begin(folder, dataclasses.replace(described, settings=numbers), say)
        with strategy.scope():
            start = classifier.load(found.path, data.names, seed=wanted.seed)
            tuned = classifier.compiled(start, steps=steps, learning_rate=wanted.learning_rate)
        if "pooler" in start.fresh:
            say(NO_POOLER)
        state = tf.train.Checkpoint(weights=tuned.weights, optimizer=tuned.optimizer)
        kept = Kept(folder, state)
        done = resumed = kept.restore(steps, say)
        if done < steps:
            tokens = sum(bucket.tokens for bucket in made.buckets) / made.batches
            each = _EachStep(kept, Clock(steps), done, tokens, save_every, signals, report)
            rest = made.dataset.repeat(wanted.epochs).skip(done)
            tuned.fit(rest, steps_per_epoch=steps - done, callbacks=[each], verbose=0)
            done = each.done
        kept.save(done)
        kept.close()
        evaluation = None
        if done == steps:
            evaluation = evaluate(tuned, tokenizer, data)
            folder.write(GUESSES, evaluation.tsv())
            if not folder.exists(exported.MODEL):
                told = card(wanted, data, evaluation, found)
                content = tokenizer.backend_tokenizer.to_str()
                export.write(tuned, content, folder.at(exported.MODEL), told)
    return Tuned(done, steps, resumed, signals.received, tuned, evaluation)


class _EachStep(tf.keras.callbacks.Callback):
    """Logs, shows and saves as a run goes on."""

    def __init__(
        self,
        kept: Kept,
        clock: Clock,
        done: int,
        tokens: float,
        save_every: int,
        signals: Signals,
        report: Callable[[Progress], None],
    ) -> None:
        super().__init__()
        self.done = done
        self._kept, self._clock, self._tokens = kept, clock, tokens
        self._save_every, self._signals, self._report = save_every, signals, report

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Forget the steps before: Keras would give the mean since this call began."""
        self.model.reset_metrics()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Log a step, save now and then, and stop where a signal came."""
        loss = float(logs["cross_entropy"])
        if not math.isfinite(loss):
            raise CourseError(
                f"The loss is {loss} at step {self.done + 1:,}.",
                "The learning rate is too high, most often.",
                "Start again in another output folder with a third of it.",
            )
        self.done += 1
        row = {"step": self.done, "loss": loss, "accuracy": float(logs["accuracy"])}
        progress = self._clock.progress(self.done, [row | {"tokens": self._tokens}])
        self._kept.add([row], progress)
        self._report(progress)
        if self.done % self._save_every == 0:
            self._kept.save(self.done)
        if self._signals.received is not None:
            self.model.stop_training = True


def _batches(
    found: exported.Exported,
    tokenizer: classifier.BertTokenizerFast,
    data: Labelled,
    wanted: Settings,
    replicas: int,
    say: Callable[[str], None],
) -> Batches:
    encoded = batches.encode(tokenizer, data.train.texts, found.longest)
    if encoded.cut:
        say(f"{encoded.cut:,} texts are longer than {found.longest} tokens, and cut to them.")
    return batches.training(
        encoded,
        data.train.labels,
        global_batch_size=wanted.global_batch_size,
        replicas=replicas,
        seed=wanted.seed,
    )


def evaluate(
    model: tf.keras.Model, tokenizer: classifier.BertTokenizerFast, data: Labelled
) -> Evaluation:
    """Let a classifier guess the labels of the test part."""
    found = classifier.probabilities(model, tokenizer, data.test.texts)
    return Evaluation(data.names, data.test, found)


def card(wanted: Settings, data: Labelled, evaluation: Evaluation, found: exported.Exported) -> str:
    """Write a classifier's model card, in Markdown."""
    options = {"undefined": jinja2.StrictUndefined, "keep_trailing_newline": True}
    template = jinja2.Template(html.text("classifier_card.md"), trim_blocks=True, **options)
    return template.render(settings=wanted, data=data, evaluation=evaluation, model=found)


def build(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    global_batch_size: int = 32,
    **columns: str,
) -> tuple[tf.keras.Model, tf.data.Dataset]:
    """Make what a preflight checks: a compiled classifier and its training batches.

    ``columns`` are those of `labelled.read`. A file of yours with ``def build(): return
    tuning.build("bert", "texts.tsv")`` is for `tpu-preflight FILE:build`.
    """
    read = labelled.read(data, **columns)
    found = exported.find(model)
    wanted = Settings(global_batch_size=global_batch_size)
    tokenizer = classifier.tokenizer(found.path)
    made = _batches(found, tokenizer, read, wanted, 1, lambda text: None)
    start = classifier.load(found.path, read.names)
    return classifier.compiled(start, steps=wanted.epochs * made.batches), made.dataset
