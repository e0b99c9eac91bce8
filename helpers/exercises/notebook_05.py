"""The exercises of notebook 05, a TPU in your own machine."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Exercise, Wrong, returned
from helpers.tpu.hardware import slice_of

_KIND, _ROWS, _BATCH = "v3-8", 1000, 96


def _shares() -> dict[str, int]:
    """Work the answer out."""
    replicas = slice_of(_KIND).replicas
    return {
        "replicas": replicas,
        "rows per replica": _BATCH // replicas,
        "steps in an epoch": _ROWS // _BATCH,
        "rows dropped": _ROWS % _BATCH,
    }


_WHY = {
    "replicas": "A v3-8 has 8 cores on 4 chips. Which of them does TensorFlow count?",
    "rows per replica": "The global batch is shared by all replicas.",
    "steps in an epoch": "A step takes one global batch; what is left at the end is no step.",
    "rows dropped": "What is left after the last whole batch?",
}


def _check_shares(answer: object) -> str:
    given, truth = answer(), _shares()
    if not isinstance(given, dict) or set(given) != set(truth):
        raise Wrong("Return the dictionary with its four keys unchanged.")
    for what, number in truth.items():
        if given[what] != number:
            raise Wrong(f"{what}: not {given[what]!r:.40}. {_WHY[what]}")
    return "8 replicas with 12 rows each, 10 steps, 40 rows left for another epoch."


def _over_replicas(answer: object, losses: list, real: list) -> list[float]:
    """Run a replica's function for each replica, with an all-reduce between them."""
    asked: list[list] = []

    def ask(x: object) -> tf.Tensor:
        asked[-1].append(tf.convert_to_tensor(x))
        return asked[-1][-1]

    replicas = [tuple(map(tf.constant, pair)) for pair in zip(losses, real, strict=True)]
    for pair in replicas:  # first time: what does each replica bring?
        asked.append([])
        answer(*pair, ask)
    if len({len(x) for x in asked}) > 1:
        raise Wrong("Every replica must call all_reduce equally often, or some wait for ever.")
    totals = [tf.add_n(list(x)) for x in zip(*asked, strict=True)]
    results = []
    for pair in replicas:  # second time: with the sums
        sums = iter(totals)
        results.append(float(returned(answer(*pair, lambda _, sums=sums: next(sums)))))
    return results


def _check_replica_loss(answer: object) -> str:
    losses = [[1.0] * 20, [4.0, 4.0] + [9.0] * 18]
    real = [[1.0] * 20, [1.0] * 2 + [0.0] * 18]
    given = sum(_over_replicas(answer, losses, real))
    if not np.isclose(given, 28 / 22, atol=1e-5):
        raise Wrong(
            "20 labels with a loss of 1 on one replica, 2 with a loss of 4 on the other: the "
            f"replicas' results must add up to {28 / 22:.4f}, not {given:.4f}."
        )
    given = sum(_over_replicas(answer, losses, [real[0], [0.0] * 20]))
    if not np.isclose(given, 1.0, atol=1e-5):
        raise Wrong(f"With no label at all on the second replica it must be 1, not {given:.4g}.")
    given = sum(_over_replicas(answer, losses, [[0.0] * 20] * 2))
    if given != 0.0:
        raise Wrong(f"With no label anywhere it must be 0, not {given:.4g}: look at 0/0.")
    return "The mean of all labels, however they fall on the replicas."


def _check_predict_all(answer: object) -> str:
    def predict(rows: object) -> np.ndarray:
        shape = np.shape(rows)
        if shape != (4, 3):
            raise Wrong(f"The model was compiled for 4 rows of 3; it was given {[*shape]}.")
        return np.asarray(rows).sum(1) * 10

    for count in (10, 8, 3):
        rows = np.arange(count * 3).reshape(count, 3)
        given = np.asarray(returned(answer(predict, rows, 4)))
        if given.shape != (count,):
            raise Wrong(f"{count} rows must get {count} answers, not {[*given.shape]}.")
        if not np.array_equal(given, rows.sum(1) * 10):
            raise Wrong(f"{count} rows: the answers are not in the order of the rows.")
    return "Every row has its answer, and the model saw one shape."


def _check_my_share(answer: object) -> str:
    rows, hosts, replicas, batch = 96, 4, 16, 32
    read, steps = [], set()
    for host in range(hosts):
        context = tf.distribute.InputContext(hosts, host, replicas)
        shared = returned(answer(tf.data.Dataset.range(rows), context, batch))
        batches = [x.numpy() for x in shared]
        sizes = {len(x) for x in batches}
        if sizes != {batch // replicas}:
            raise Wrong(
                f"A global batch of {batch} on {replicas} replicas is {batch // replicas} rows for "
                f"each; yours has {', '.join(map(str, sorted(sizes)))}."
            )
        read.append(np.concatenate(batches))
        steps.add(len(batches))
    every = np.sort(np.concatenate(read))
    if len(every) > rows or len(np.unique(every)) < len(every):
        raise Wrong("Some rows are read by more than one host.")
    if not np.array_equal(every, np.arange(rows)):
        raise Wrong("Some rows are read by no host.")
    if len(steps) > 1:
        raise Wrong("One host has more batches than another: the others would wait for ever.")
    ragged = answer(tf.data.Dataset.range(97), tf.distribute.InputContext(1, 0, 16), 32)
    if ragged.element_spec.shape != (2,):
        raise Wrong("The batch's size is not known beforehand: what about the last rows?")
    return "Each host reads its own quarter, in batches for one replica, all of one size."


EXERCISES = {
    "05-1": Exercise(
        stub="""\
def shares():
    raise NotImplementedError("05-1")
    # A v3-8 trains on 1,000 rows with a global batch of 96 and drop_remainder=True.
    return {
        "replicas": 0,
        "rows per replica": 0,
        "steps in an epoch": 0,
        "rows dropped": 0,
    }
""",
        answer="shares",
        check=_check_shares,
        hints=(
            "How many devices does TensorFlow see on a v3-8: its chips, or its cores?",
            "helpers.tpu.hardware.slice_of knows. The rest is division with remainder.",
            "divmod(1000, 96) gives two of the four numbers.",
        ),
        solution="""\
def shares():
    return {
        "replicas": 8,
        "rows per replica": 12,
        "steps in an epoch": 10,
        "rows dropped": 40,
    }
""",
        wrong={
            "8 cores on 4 chips": """\
def shares():
    return {"replicas": 4, "rows per replica": 24, "steps in an epoch": 10, "rows dropped": 40}
""",
            "shared by all replicas": """\
def shares():
    return {"replicas": 8, "rows per replica": 96, "steps in an epoch": 1, "rows dropped": 232}
""",
            "is no step": """\
def shares():
    return {"replicas": 8, "rows per replica": 12, "steps in an epoch": 11, "rows dropped": 0}
""",
            "after the last whole batch": """\
def shares():
    return {"replicas": 8, "rows per replica": 12, "steps in an epoch": 10, "rows dropped": 0}
""",
            "four keys unchanged": "def shares():\n    return 8, 12, 10, 40\n",
        },
    ),
    "05-2": Exercise(
        stub="""\
def replica_loss(losses, real, all_reduce):
    # Runs on each replica; the results are added up. losses, real: [places], real is 1.0 on a
    # label and 0.0 elsewhere. all_reduce(x) gives the sum of x over all replicas.
    # This is the mean of the replicas' means. Make every label weigh the same:
    #     replicas = all_reduce(1.0)
    #     return tf.reduce_sum(losses * real) / tf.reduce_sum(real) / replicas
    raise NotImplementedError("05-2")
""",
        answer="replica_loss",
        check=_check_replica_loss,
        hints=(
            "What a replica adds to the sum is right already; by what is it divided?",
            "The number of labels on all replicas together is a sum over replicas.",
            "And where there is no label at all, tf.math.divide_no_nan gives 0.",
        ),
        solution="""\
def replica_loss(losses, real, all_reduce):
    count = all_reduce(tf.reduce_sum(real))
    return tf.math.divide_no_nan(tf.reduce_sum(losses * real), count)
""",
        wrong={
            "not 2.5000": """\
def replica_loss(losses, real, all_reduce):
    replicas = all_reduce(1.0)
    return tf.math.divide_no_nan(tf.reduce_sum(losses * real), tf.reduce_sum(real)) / replicas
""",
            "not 2.5455": """\
def replica_loss(losses, real, all_reduce):
    total = all_reduce(tf.reduce_sum(losses * real))
    return tf.math.divide_no_nan(total, all_reduce(tf.reduce_sum(real)))
""",
            "look at 0/0": """\
def replica_loss(losses, real, all_reduce):
    return tf.reduce_sum(losses * real) / all_reduce(tf.reduce_sum(real))
""",
            "equally often": """\
def replica_loss(losses, real, all_reduce):
    count = tf.reduce_sum(real)
    if count > 2:
        count = all_reduce(count)
    return tf.reduce_sum(losses * real) / count
""",
        },
    ),
    "05-3": Exercise(
        stub="""\
def predict_all(predict, rows, batch):
    # predict takes exactly `batch` rows and gives one answer for each. rows: an array [any, 3].
    # Give the answers for all rows, in their order. (np.pad and np.concatenate help.)
    raise NotImplementedError("05-3")
""",
        answer="predict_all",
        check=_check_predict_all,
        hints=(
            "How many rows are missing for the last batch to be full?",
            "-len(rows) % batch is that number; put so many rows of anything at the end.",
            "The answers for the added rows are the last ones: cut after len(rows).",
        ),
        solution="""\
def predict_all(predict, rows, batch):
    full = np.pad(rows, [(0, -len(rows) % batch), (0, 0)])
    answers = [predict(full[i : i + batch]) for i in range(0, len(full), batch)]
    return np.concatenate(answers)[: len(rows)]
""",
        wrong={
            "it was given [2, 3]": """\
def predict_all(predict, rows, batch):
    return np.concatenate([predict(rows[i : i + batch]) for i in range(0, len(rows), batch)])
""",
            "10 rows must get 10 answers, not [8]": """\
def predict_all(predict, rows, batch):
    whole = len(rows) // batch * batch
    return np.concatenate([predict(rows[i : i + batch]) for i in range(0, whole, batch)])
""",
            "10 rows must get 10 answers, not [12]": """\
def predict_all(predict, rows, batch):
    full = np.pad(rows, [(0, -len(rows) % batch), (0, 0)])
    return np.concatenate([predict(full[i : i + batch]) for i in range(0, len(full), batch)])
""",
            "not in the order": """\
def predict_all(predict, rows, batch):
    full = np.pad(rows, [(-len(rows) % batch, 0), (0, 0)])
    answers = [predict(full[i : i + batch]) for i in range(0, len(full), batch)]
    return np.concatenate(answers)[: len(rows)]
""",
        },
    ),
    "05-4": Exercise(
        stub="""\
def my_share(dataset, context, global_batch):
    # For strategy.distribute_datasets_from_function. dataset: all rows, the same on every host.
    # context: tf.distribute.InputContext of this host. Give batches for one replica.
    raise NotImplementedError("05-4")
""",
        answer="my_share",
        check=_check_my_share,
        hints=(
            "Two things to do: leave the other hosts' rows out, and make batches.",
            "context has num_input_pipelines (hosts) and input_pipeline_id (this one).",
            "context.get_per_replica_batch_size(global_batch) is the size; all batches alike.",
        ),
        solution="""\
def my_share(dataset, context, global_batch):
    mine = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    size = context.get_per_replica_batch_size(global_batch)
    return mine.batch(size, drop_remainder=True)
""",
        wrong={
            "is 2 rows for each; yours has 24": """\
def my_share(dataset, context, global_batch):
    mine = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    return mine.batch(global_batch, drop_remainder=False)
""",
            "more than one host": """\
def my_share(dataset, context, global_batch):
    size = context.get_per_replica_batch_size(global_batch)
    return dataset.batch(size, drop_remainder=True)
""",
            "by no host": """\
def my_share(dataset, context, global_batch):
    mine = dataset.shard(context.num_replicas_in_sync, context.input_pipeline_id)
    size = context.get_per_replica_batch_size(global_batch)
    return mine.batch(size, drop_remainder=True)
""",
            "not known beforehand": """\
def my_share(dataset, context, global_batch):
    mine = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    return mine.batch(context.get_per_replica_batch_size(global_batch))
""",
        },
    ),
}
