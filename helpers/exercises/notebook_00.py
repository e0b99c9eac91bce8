"""The exercises of notebook 00, what a TPU is."""

import numpy as np

from helpers.exercises import Wrong, returned
from tpu_preflight import preflight
from tpu_preflight.chips.hardware import slice_of


def _check_replicas(answer: object) -> str:
    for name in ("v2-8", "v3-32", "v4-8", "v5p-16", "v5e-4", "v6e-8"):
        tpu = slice_of(name)
        if (given := returned(answer(name))) != tpu.replicas:
            raise Wrong(
                f"{name}: it is not {given!r}. It has {tpu.chips} chips; what is one "
                "replica there: a core, two cores that work as one, or a chip?"
            )
    return "Cores on v2 and v3, pairs of cores on v4 and v5p, chips on v5e and v6e."


def _check_build_program(answer: object) -> str:
    rng = np.random.default_rng(0)
    ids, length = rng.integers(1000, size=(100, 24), dtype=np.int32), np.arange(100) % 20 + 5
    length, labels = length.astype(np.int32), (ids[:, 0] < 500).astype(np.int32)
    model, _ = returned(answer(ids, length, labels))
    if model.optimizer is None:
        raise Wrong("The model has no optimizer and no loss yet: compile it.")
    inside = np.arange(24) < length[:, None]
    texts = {"ids": ids, "behind": np.where(inside, ids, 7), "within": np.where(inside, 7, ids)}
    said = {k: np.asarray(model({"ids": x[:8], "length": length[:8]})) for k, x in texts.items()}
    if not np.allclose(said["ids"], said["behind"], atol=1e-5):
        raise Wrong("Other numbers after a text's length change what the model says of it.")
    if np.allclose(said["ids"], said["within"], atol=1e-5):
        raise Wrong("Other words within a text's length don't change what the model says of it.")
    report = preflight(lambda: answer(ids, length, labels), target="v5e-8")
    for item in report.items:
        if item.state in ("fail", "warn"):
            raise Wrong(f"{item.name}: {item.finding}. {item.fix}")
    return f"{report.summary}. You have written a program that is ready for a TPU."
