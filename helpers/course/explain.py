"""From an error, or a pasted log, to its cause and what to do about it.

Every symptom comes from a public thread, named in `Symptom.source`, or from a cell of the course.
"""

import html
import os
import re
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

LONGEST_EVIDENCE = 160
MOST_MATCHES = 3
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Symptom:
    """What an error looks like, why it happens, and what to do.

    Attributes:
        name: In a few words.
        pattern: Regular expression that the error's text matches; ``.`` stays within a line.
        cause: Why it happens.
        fix: What to do now.
        source: The public thread where people met it (owner/repository#number), or the notebook
            of the course that produces it.
        lesson: Number of the notebook that teaches it.
    """

    name: str
    pattern: str
    cause: str
    fix: str
    source: str
    lesson: str


# The most telling first: an error may match several, and the first three are shown.
SYMPTOMS = (
    Symptom(
        "Saving to your own disk from a TPU Node",
        r"File system scheme '\[local\]' not implemented.*_temp"
        r"|No such file or directory.*variables_temp|variables_temp\S*; No such file",
        "The Node writes the file itself, and your disk is not there.",
        "Save to gs://, or let your own machine write: "
        'tf.saved_model.SaveOptions(experimental_io_device="/job:localhost"), and the same in '
        "tf.train.CheckpointOptions.",
        "tensorflow/tensorflow#36447",
        "04",
    ),
    Symptom(
        "A path of your own disk on a TPU Node",
        r"File system scheme '\[local\]' not implemented",
        "A TPU Node is another machine: it opens the files itself, and your disk is not there.",
        "Put data and checkpoints on gs://, or use a TPU VM, whose disk is its own.",
        "tensorflow/models#8265",
        "04",
    ),
    Symptom(
        "gs:// on Windows",
        r"File system scheme 'gs' not implemented",
        "TensorFlow's wheel for Windows comes without Google's storage.",
        "Run it on Linux or in WSL, or download the files first.",
        "google/automl#1098",
        "04",
    ),
    Symptom(
        "The bucket may not be used",
        r"does not have storage\.\w+\.\w+ access|Permission 'storage\.[\w.]+' denied"
        r"|HTTP response code 403.*gs://",
        "The TPU's service account, not you, reads and writes the bucket, and it has no right to.",
        "gcloud storage buckets add-iam-policy-binding gs://BUCKET "
        "--member=serviceAccount:ACCOUNT --role=roles/storage.objectAdmin, with the account that "
        "the message names.",
        "keras-team/keras-tuner#921",
        "05",
    ),
    Symptom(
        "The bucket or object is not there",
        r"HTTP response code 404.*(?:gs://|bucket)|The specified path gs://\S+ was not found",
        "The name is misspelt, or nothing was written there.",
        "gcloud storage ls gs://BUCKET shows what there is.",
        "notebook 04",
        "04",
    ),
    Symptom(
        "Google's storage can't be reached",
        r"Error executing an HTTP request: libcurl code (?:6|7|28|35|60)\b",
        "There is no network, no name service or another certificate between you and "
        "storage.googleapis.com; a proxy is a usual reason.",
        "Check the network and the variables https_proxy and CURL_CA_BUNDLE.",
        "notebook 04",
        "04",
    ),
    Symptom(
        "TensorFlow has no TPU inside",
        r"(?:No OpKernel was registered to support Op|no registered kernels for Op|"
        r"No registered) ?'?(?:ConfigureDistributedTPU|TPUReplicateMetadata)",
        "This is the ordinary TensorFlow wheel; it holds no TPU code.",
        "On a machine with a TPU: pip uninstall -y tensorflow, pip install tensorflow-tpu==2.20.0, "
        "restart the kernel. On a machine without one: use the course's CPU cells.",
        "googlecolab/colabtools#5203",
        "05",
    ),
    Symptom(
        "No TPU at this address",
        r"TPU_SYSTEM:0 unknown device|No matching devices found for '/device:TPU_SYSTEM"
        r"|Cannot find any TPU cores in the system|Could not find any TPU devices",
        "What answers there is no TPU worker, or TensorFlow was used before the TPU was connected.",
        "Connect first, at the top of the program, and use the address of the TPU: "
        "helpers.runtime.connect() does both.",
        "google-research/electra#4",
        "04",
    ),
    Symptom(
        "TPUStrategy before the TPU was initialised",
        r"(?s)tpu_strategy\.py.*index 0 is out of bounds for axis 0 with size 0",
        "The list of TPU cores is empty: there is no TPU, or it was not initialised.",
        "Call tf.tpu.experimental.initialize_tpu_system(resolver) before tf.distribute.TPUStrategy;"
        " if that fails, its message tells more.",
        "notebook 04",
        "04",
    ),
    Symptom(
        "The resolver doesn't know which TPU",
        r"Please provide a TPU Name to connect to",
        "TPUClusterResolver() looks at TPU_NAME and found nothing. It never looks at "
        "COLAB_TPU_ADDR, and a TPU VM sets no name.",
        "On a TPU VM (Colab and Kaggle today): TPUClusterResolver(tpu='local').",
        "tensorflow/tensorflow#70827",
        "04",
    ),
    Symptom(
        "The TPU's name can't be looked up",
        r"(?si)(?:tpu_cluster_resolver|cloud_tpu_client|metadata\.google).*"
        r"(?:urlopen error|URLError|timed out)",
        "A name (not an address) is looked up at Google's metadata server, which only machines in "
        "Google Cloud can reach.",
        "Pass 'local' on a TPU VM, or 'grpc://IP:8470' for a Node.",
        "google-research/bert#518",
        "04",
    ),
    Symptom(
        "A TPU's name needs one more package",
        r"Missing runtime dependency on the Google API client",
        "Looking up a TPU by name, zone and project is done by cloud-tpu-client, which is not "
        "installed.",
        "Pass 'local' or 'grpc://IP:8470' and no package is needed.",
        "notebook 04",
        "04",
    ),
    Symptom(
        "No TensorFlow on Colab's TPU machine",
        r"No module named 'tensorflow'(?!\.)",
        "Colab's TPU machines come without TensorFlow since March 2025.",
        "pip install tensorflow-tpu==2.20.0 and restart, or run the course's setup cell, which "
        "does it.",
        "googlecolab/colabtools#5185",
        "05",
    ),
    Symptom(
        "Python on a TPU Node",
        r"No registered '(?:Eager)?PyFunc' OpKernel",
        "from_generator, py_function and numpy_function need Python, and the Node's worker has "
        "none.",
        "Write TFRecords to gs://, or do it with TensorFlow's own operations.",
        "tensorflow/tensorflow#39030",
        "04",
    ),
    Symptom(
        "The worker can't call back",
        r"(?i)failed to connect to all addresses",
        "A generator, numpy_function or to_tf_dataset runs in your kernel, and the worker must "
        "call it; it can't reach your machine. With plain data, the TPU's TensorFlow is of another "
        "version than yours.",
        "Read TFRecords from gs://, or pass arrays; and compare the two versions.",
        "tensorflow/tensorflow#43037",
        "04",
    ),
    Symptom(
        "A dataset that stayed on your machine",
        r"Unable to parse tensor proto",
        "A dataset built under tf.device('/job:localhost') lives in your kernel; the worker can't "
        "take it over.",
        "Build it without that device, or read batches under it and give the tensors to "
        "train_on_batch.",
        "tensorflow/tensorflow#33747",
        "04",
    ),
    Symptom(
        "The TPU went away",
        r"(?i)Socket closed|Unavailable(?:Error)?: .*(?:Connection refused|reset by peer)"
        r"|worker was preempted",
        "The connection to the worker ended: preemption, maintenance, or the worker ran out of "
        "host memory.",
        "Save checkpoints, at least two, and start again from the newest; after a preemption "
        "create the TPU anew.",
        "tensorflow/tensorflow#46007",
        "05",
    ),
    Symptom(
        "Two versions of TensorFlow",
        r"Op type not registered '\w+' in binary running on",
        "Your TensorFlow knows an operation that the TPU's TensorFlow doesn't.",
        "Create the TPU with the runtime version that equals tf.__version__, or install that "
        "version here.",
        "tensorflow/tensorflow#32712",
        "05",
    ),
    Symptom(
        "Another program holds the TPU",
        r"libtpu\.so (?:is )?already in used?\b|The TPU is already in use"
        r"|libtpu multi-process lockfile|No ba16c7433 device found",
        "A TPU serves one process; another kernel, or one that crashed, still holds it.",
        "Shut the other kernel down. python -m helpers doctor names the process.",
        "jax-ml/jax#10192",
        "05",
    ),
    Symptom(
        "Strings on the TPU",
        r"Unsupported data type for TPU: string|'string'> is not a supported TPU infeed type",
        "A TPU has no strings.",
        "Tokenise in tf.data, and drop the columns that hold text.",
        "tensorflow/tensorflow#60092",
        "02",
    ),
    Symptom(
        "Small whole numbers on the TPU",
        r"(?s)No registered 'Identity' OpKernel for '?TPU.*T=DT_U?INT(?:8|16)",
        "An input has 8 or 16 bit whole numbers, which can't be sent to a TPU.",
        "Cast in tf.data: tf.cast(image, tf.float32), tf.cast(ids, tf.int32).",
        "tensorflow/tensorflow#37426",
        "02",
    ),
    Symptom(
        "64 bits that the TPU lacks",
        r"computation to not contain X\W?64",
        "The TPU compiler splits 64 bit numbers in two, and can't for this operation.",
        "Use int32 or float32; tf.cast before the operation.",
        "notebook 02",
        "02",
    ),
    Symptom(
        "The memory of the TPU, wasted by its layout",
        r"Extra memory due to padding: \S+ \((?:[2-9]|\d\d+)\.\dx expansion\)",
        "The last two dimensions are padded to multiples of 8 and 128; a small last dimension "
        "multiplies the memory.",
        "Put a large dimension last, or merge dimensions: reshape [n, 8, 4] to [n, 32] or "
        "transpose it.",
        "DifferentiableUniverseInitiative/flowpm#27",
        "01",
    ),
    Symptom(
        "The memory of the TPU",
        r"Ran out of memory in memory space [hv](?:bm|mem)|CompileTimeHbmOom",
        "One step needs more memory than a core has.",
        "Make the batch per core smaller, or the sequence shorter; use bfloat16. Notebook 08 finds "
        "the largest batch that fits before you pay.",
        "tensorflow/tpu#385",
        "08",
    ),
    Symptom(
        "A dynamic dimension",
        r"input dynamic dimension is decomposed into multiple"
        r"|(?i:dynamic (?:shape|input dimension|concatenation)[^\n]*not supported)"
        r"|does not support bounded dynamic|is not supported to have a dynamic dimension",
        "The last batch is smaller, or a mask makes a size that depends on values: the compiler "
        "gets a shape with an upper bound only.",
        "batch(..., drop_remainder=True), weights instead of masks that cut, and no jit_compile "
        "with TPUStrategy.",
        "keras-team/keras-hub#443",
        "02",
    ),
    Symptom(
        "A size that is known too late",
        r"must be a compile-time constant",
        "A shape or length is computed from values, and XLA needs it before it sees one.",
        "Make it a Python number, or take it from a static shape (x.shape, not tf.shape(x)).",
        "tensorflow/tensorflow#55973",
        "02",
    ),
    Symptom(
        "An operation that XLA doesn't have",
        r"Detected unsupported operations when trying to compile graph"
        r"|No registered '\w+' OpKernel for XLA_\w+_JIT",
        "The message names the operation: it has no version for XLA.",
        "Move it into tf.data, which runs on the CPU, or rewrite it with operations that have.",
        "leondgarse/keras_cv_attention_models#8",
        "02",
    ),
    Symptom(
        "A Python if on a tensor",
        r"Using a symbolic `tf\.Tensor` as a Python `bool` is not allowed",
        "While a function is traced a tensor has no value, and AutoGraph, which rewrites if, is "
        "off here (as inside much library code).",
        "Use tf.where or tf.cond.",
        "notebook 02",
        "02",
    ),
    Symptom(
        "jit_compile under a strategy",
        r"failed to lift variable creations|Trying to access resource .* located in device"
        r"|`merge_call` called while defining a new graph",
        "jit_compile=True puts the whole step, all-reduce included, on one device; under a "
        "strategy the variables live on several.",
        "Leave jit_compile out: TPUStrategy compiles by itself.",
        "keras-team/tf-keras#385",
        "05",
    ),
    Symptom(
        "Created outside the strategy's scope",
        r"was not created in the distribution strategy scope"
        r"|Trying to create optimizer slot variable under the scope"
        r"|must only be passed a variable created in this tf\.distribute"
        r"|was created inside a different distribution strategy scope",
        "Model, optimizer and metrics must live on the same replicas.",
        "Build all three, and call compile, inside `with strategy.scope():`.",
        "tensorflow/tensorflow#55713",
        "05",
    ),
    Symptom(
        "A step outside tf.function",
        r"does not support pure eager execution",
        "A TPU runs compiled functions only.",
        "Call strategy.run inside a function decorated with @tf.function.",
        "tensorflow/tensorflow#41074",
        "05",
    ),
    Symptom(
        "Devices set too late",
        r"Virtual devices cannot be modified after being initialized"
        r"|Physical devices cannot be modified after being initialized",
        "TensorFlow fixes its devices at its first operation.",
        "Restart the kernel and set them in the first cell after the setup.",
        "notebook 05",
        "05",
    ),
    Symptom(
        "A second strategy in one process",
        r"Collective ops is aborted by",
        "Two MirroredStrategies share the devices of one process, and their all-reduces meet.",
        "Use one strategy per process; restart the kernel for another.",
        "notebook 05",
        "05",
    ),
    Symptom(
        "A batch that can't be divided",
        r"(?i)batch[ _]size`?:? ?\S* (?:must be|is not) divisible by",
        "Each replica takes the same number of examples.",
        "Make the global batch a multiple of strategy.num_replicas_in_sync.",
        "google-research/bert#67",
        "05",
    ),
    Symptom(
        "A compilation for each shape",
        r"New input shapes; \(re-\)compiling|triggered tf\.function retracing",
        "Every new shape is compiled anew, and the last batch of an epoch is one.",
        "drop_remainder=True, and lengths padded to few buckets.",
        "tensorflow/tensorflow#27313",
        "03",
    ),
    Symptom(
        "A label out of range",
        r"Received a label value of -?\d+ which is outside the valid range",
        "A label such as -100 means 'ignore' elsewhere. On a CPU the loss stops here; compiled, "
        "it becomes nan without a word.",
        "Replace it by 0 and give it weight 0, before the loss.",
        "notebook 02",
        "02",
    ),
    Symptom(
        "A loss that is not a number",
        r"(?i)\bloss(?:['\"])?\s*[:=]\s*nan\b",
        "A label out of range, a division by zero, a learning rate too high, or, on the older "
        "Colab TPU with tensorflow-tpu 2.18, jit_compile=True.",
        "Look at the labels of one batch, lower the learning rate, leave jit_compile out, and stop "
        "a run whose loss is not finite.",
        "notebook 02",
        "02",
    ),
    Symptom(
        "A damaged checkpoint",
        r"too short to be an sstable|truncated block read|TensorBundle at .*Checksum does not match"
        r"|Data ?loss\w*: Checksum does not match",
        "The run ended while the file was written, or the copy is not complete.",
        "Read the checkpoint before it: keep at least two (max_to_keep=2 or more).",
        "tensorflow/tensorflow#61449",
        "05",
    ),
    Symptom(
        "No checkpoint there",
        r"Failed to (?:find any|get) matching files",
        "No file begins with this path: a misspelt prefix, or the worker looks on another disk "
        "than yours.",
        "Pass the prefix (ckpt-3), not a file; tf.train.latest_checkpoint(folder) finds it.",
        "google-research/pegasus#90",
        "05",
    ),
    Symptom(
        "A damaged TFRecord",
        r"(?:truncated|corrupted) record at \d+",
        "The file was cut off while it was written or copied, or it is no TFRecord.",
        "Write it again: python -m helpers prepare keeps the shards that are whole.",
        "notebook 06",
        "06",
    ),
    Symptom(
        "transformers without TensorFlow",
        r"cannot import name 'TF\w+' from 'transformers",
        "transformers 5 removed TensorFlow.",
        'pip install "transformers>=4.57,<5" and restart.',
        "huggingface/transformers#40760",
        "07",
    ),
    Symptom(
        "Keras 3 under transformers",
        r"installed version of Keras is Keras 3, but this is not yet supported",
        "transformers 4 is written for Keras 2.",
        "pip install tf-keras, set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported.",
        "huggingface/transformers#36410",
        "07",
    ),
    Symptom(
        "Code of TensorFlow 1",
        r"module 'tensorflow(?:\.compat\.v1)?' has no attribute '(?:contrib|estimator)'"
        r"|No module named 'tensorflow[._](?:contrib|estimator)",
        "tf.contrib went away in TensorFlow 2, TPUEstimator in 2.16.",
        "Use Keras with tf.distribute.TPUStrategy: notebook 05 says what replaced what.",
        "PJunhyuk/people-counting-pose#11",
        "05",
    ),
    Symptom(
        "No TPU free in this zone",
        r"There is no more capacity in the zone|Insufficient reserved capacity",
        "All TPUs of this kind are taken.",
        "Ask for a queued resource, which waits for you, or try another zone.",
        "thevasudevgupta/gsoc-wav2vec2#11",
        "05",
    ),
    Symptom(
        "No quota for this TPU",
        r"Quota limit 'TPU\w+' has been exceeded",
        "A new project's limit is often 0, and each kind, spot or not, has its own.",
        "Ask for it: console.cloud.google.com > IAM > Quotas, with the name in the message.",
        "marin-community/marin#1612",
        "05",
    ),
)


@dataclass(frozen=True)
class Match:
    """A known symptom in a text.

    Attributes:
        symptom: Which one.
        evidence: The line of the text that shows it, shortened.
    """

    symptom: Symptom
    evidence: str


@dataclass(frozen=True)
class Explanation:
    """What is known about an error.

    Attributes:
        matches: The symptoms found in it, the most telling first; at most three.
        course: The error's own what, why and fix, when the course raised it.
    """

    matches: tuple[Match, ...]
    course: CourseError | None = None

    def __bool__(self) -> bool:
        return bool(self.matches or self.course)

    def _blocks(self) -> list[tuple[str, list[tuple[str, str]]]]:
        if self.course is not None:
            error = self.course
            return [(error.what, [("Why", error.why), ("Fix", error.fix)])]
        return [
            (
                match.symptom.name,
                [
                    ("Seen", match.evidence),
                    ("Why", match.symptom.cause),
                    ("Fix", match.symptom.fix),
                    ("More", f"notebook {match.symptom.lesson}; {match.symptom.source}"),
                ],
            )
            for match in self.matches
        ]

    def __repr__(self) -> str:
        if not self:
            return NOTHING
        return "\n\n".join(
            "\n".join([title, *(f"  {name}: {text}" for name, text in lines)])
            for title, lines in self._blocks()
        )

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{html.escape(NOTHING)}</p>"
        return "".join(
            f"<p><strong>{html.escape(title)}</strong></p><ul>"
            + "".join(f"<li><em>{name}</em>: {html.escape(text)}</li>" for name, text in lines)
            + "</ul>"
            for title, lines in self._blocks()
        )


NOTHING = (
    "No known symptom is in this text. Give it the whole traceback, from the first line on; "
    "`python -m helpers doctor` checks this machine."
)


def _text(error: BaseException) -> str:
    """Say an exception and what led to it: names, messages, files, but no source lines.

    A source line may quote another error's message, as tests and lessons do.
    """
    lines, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        frames = traceback.extract_tb(error.__traceback__)
        lines += [f"{os.path.basename(frame.filename)}, {frame.name}" for frame in frames]  # noqa: PTH119
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)


def explain(error: BaseException | str) -> Explanation:
    """Look for known symptoms in an error.

    Args:
        error: An exception, with its traceback if it has one, or a pasted log. Colours are
            ignored.

    Returns:
        The symptoms found, the most telling first; empty (and false) when there is none.
    """
    if isinstance(error, CourseError):
        return Explanation((), error)
    text = COLOURS.sub("", error if isinstance(error, str) else _text(error))
    matches = []
    for symptom in SYMPTOMS:
        if found := re.search(symptom.pattern, text):
            line = text[: found.end()].rpartition("\n")[2] + text[found.end() :].partition("\n")[0]
            line = " ".join(line.split())
            cut = len(line) > LONGEST_EVIDENCE
            matches.append(Match(symptom, line[: LONGEST_EVIDENCE - 1] + "…" if cut else line))
    return Explanation(tuple(matches[:MOST_MATCHES]))


def page() -> str:
    """Write all symptoms as one page.

    Returns:
        Markdown, ordered by notebook.
    """
    lines = [
        "# When it fails: all symptoms",
        "",
        "Made from `helpers/course/explain.py` by `python -m helpers explain --page`. Paste an "
        "error into `python -m helpers explain`, or type `%explain` after a failed cell, and "
        "the right line finds you.",
    ]
    for lesson in sorted({symptom.lesson for symptom in SYMPTOMS}):
        # GitHub makes its own anchors small; JupyterLab keeps the heading's letters.
        heading = f'## <a id="Notebook-{lesson}"></a>Notebook {lesson}'
        lines += ["", heading, "", "| symptom | why | fix | met in |"]
        lines.append("| --- | --- | --- | --- |")
        for symptom in SYMPTOMS:
            if symptom.lesson == lesson:
                texts = (symptom.name, symptom.cause, symptom.fix)
                cells = [*map(_plain, texts), _link(symptom.source)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Keep Markdown from reading underscores and stars of names as its own."""
    parts = text.replace("|", "&#124;").split("`")  # every second one is code
    return "`".join(
        re.sub(r"([_*<])", r"\\\1", x) if n % 2 == 0 else x for n, x in enumerate(parts)
    )


def _link(source: str) -> str:
    repository, _, number = source.partition("#")
    if not number:
        return source
    return f"[{source}](https://github.com/{repository}/issues/{number})"


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add ``%explain``, which explains the error of the cell that failed last."""

    def explain_last(line: str) -> Explanation | None:
        """Explain the error of the cell that failed last."""
        last = getattr(sys, "last_value", None)
        if last is None:
            print("No cell has failed yet.")  # noqa: T201
            return None
        return explain(last)

    shell.register_magic_function(explain_last, "line", "explain")
