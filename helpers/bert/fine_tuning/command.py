"""The commands ``finetune`` and ``predict``: what is asked for is checked before TensorFlow."""

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from helpers.base.errors import CourseError
from helpers.base.folders import address
from helpers.base.output import errors_only
from helpers.base.settings import ENVIRONMENT
from helpers.bert.command import Display, check_name
from helpers.bert.fine_tuning import exported, labelled, settings
from helpers.bert.fine_tuning.settings import Settings
from helpers.text import sources
from helpers.tpu.connection import connect, tensorflow_environment
from helpers.tpu.place import detect

AT_ONCE = 1024  # texts that are predicted before their labels are given


def finetune(
    model: str, data: str, output: str, *, columns: dict[str, Any], tpu: str | None, **options: Any
) -> int:
    """Fine-tune as the command line asks for, show it, and give the exit status.

    ``columns`` are the options of `labelled.read`, ``options`` those of `settings.Settings`.

    Raises:
        CourseError: As `tuning.run`; what can be known before TensorFlow starts, before.
    """
    display = Display(Console(stderr=False))
    wanted, output = Settings(**options), address(output)
    check_name(tpu)
    read = labelled.read(data, **columns)
    settings.check(wanted, exported.find(model), read, output)
    display.say(f"{read!r}.")
    if read.overlap:
        display.say(f"{read.overlap:,} texts of the test part are in the training part, too.")
    os.environ.update(ENVIRONMENT | tensorflow_environment(detect()))
    try:
        import tensorflow as tf

        errors_only(tf)
        from helpers.bert.fine_tuning import tuning

        strategy = connect(tpu) if tpu else None
        with display.shown():
            tuned = tuning.run(
                wanted,
                model,
                read,
                output,
                strategy=strategy,
                say=display.say,
                report=display.report,
            )
    except KeyboardInterrupt:
        display.say("Stopped at once. Run the same command again: it goes on from the last save.")
        return 130
    if tuned.evaluation is None:
        display.say(f"Saved in {output}. Run the same command again to go on.")
        return 128 + tuned.stopped
    display.say(f"{tuned.evaluation!r}.\n{tuned.evaluation.table()}")
    display.say(f"Each guess: {output}/{tuning.GUESSES}; the model: {output}/{exported.MODEL}.")
    return 0


def predict(model: str, texts: str, *, field: str, as_json: bool) -> Iterator[str]:
    """Give a line for each text: label and confidence, then the text.

    Raises:
        CourseError: There is no such classifier, a text is empty, or as `sources.find`.
    """
    found = exported.find_classifier(model)
    documents = _documents(texts, field)
    os.environ.update(ENVIRONMENT)
    import tensorflow as tf

    errors_only(tf)
    from helpers.bert.fine_tuning import classifier

    read, tokenizer = classifier.restored(found.path), classifier.tokenizer(found.path)
    names = [read.config.id2label[at] for at in range(read.config.num_labels)]
    while some := list(itertools.islice(documents, AT_ONCE)):
        for text, row in zip(some, classifier.probabilities(read, tokenizer, some), strict=True):
            label, confidence = names[row.argmax()], float(row.max())
            if as_json:
                told = {"label": label, "confidence": round(confidence, 4), "text": text}
                yield json.dumps(told, ensure_ascii=False)
            else:
                yield f"{label}\t{confidence:.4f}\t{' '.join(text.split())}"


def _documents(texts: str, field: str) -> Iterator[str]:
    """Find the texts now, and read them when they are asked for."""
    files = sources.find([texts], field=field)

    def read() -> Iterator[str]:
        for file in files:
            for document in file.documents():
                if not document.text.strip():
                    raise CourseError(
                        f"Text {document.place + 1:,} of {document.source} is empty.",
                        "Nothing can be told of it.",
                        "Remove it, or write what it says.",
                    )
                yield document.text

    return read()
