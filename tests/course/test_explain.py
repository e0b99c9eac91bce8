"""Each known symptom on a real message, and none of them on an error that has another cause."""

import re
import subprocess
import sys

import nbformat
import pytest
import tensorflow as tf
from nbclient import NotebookClient
from typer.testing import CliRunner

from helpers.__main__ import app
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course import explain as module
from helpers.course.explain import SYMPTOMS, Explanation, explain

# What people pasted into public threads (named), and what TensorFlow 2.20 and its tools print.
MESSAGES = [
    (
        "Saving to your own disk from a TPU Node",
        "tensorflow/models#8265",
        "Error recorded from training_loop: File system scheme '[local]' not implemented (file: "
        "'/tmp/tmpUUrctt/model.ckpt-0_temp_3546763fe0ab4b32a5353eb8f190192c')",
    ),
    (
        "A path of your own disk on a TPU Node",
        "tensorflow/tensorflow#32651",
        "UnimplementedError: From /job:worker/replica:0/task:0:\nFile system scheme '[local]' not "
        "implemented (file: '/content/gdrive/My Drive/data/encodeddata_inGZIP.tfrecord')\n"
        "\t [[{{node MultiDeviceIteratorGetNextFromShard}}]]",
    ),
    (
        "gs:// on Windows",
        "google/automl#1098",
        "tensorflow.python.framework.errors_impl.UnimplementedError: File system scheme 'gs' not "
        "implemented (file: 'gs://cloud-tpu-checkpoints/efficientnet/v2/hub/efficientnetv2-b0')",
    ),
    (
        "The bucket may not be used",
        "googlecolab/colabtools#1177",
        "PermissionDeniedError: Error executing an HTTP request: HTTP response code 403 with body "
        '\'{\n  "error": {\n    "code": 403,\n    "message": '
        '"service-495559152420@cloud-tpu.iam.gserviceaccount.com does not have '
        'storage.objects.create access to bucketname/train/events.out.tfevents"',
    ),
    (
        "The bucket may not be used",
        "keras-team/keras-tuner#921",
        '"message": "service-<id>@cloud-tpu.iam.gserviceaccount.com does not have '
        "storage.objects.list access to the Google Cloud Storage bucket. Permission "
        "'storage.objects.list' denied on resource (or it may not exist).\"",
    ),
    (
        "The bucket or object is not there",
        "TensorFlow 2.20",
        "tensorflow.python.framework.errors_impl.NotFoundError: The specified path "
        "gs://course/nothing was not found.",
    ),
    (
        "Google's storage can't be reached",
        "TensorFlow 2.20",
        "FailedPreconditionError: Error executing an HTTP request: libcurl code 6 meaning 'Could "
        "not resolve hostname', error details: Could not resolve host: storage.googleapis.com\n"
        "\t when reading gs://nope/x [Op:ReadFile]",
    ),
    (
        "TensorFlow has no TPU inside",
        "googlecolab/colabtools#5203",
        "InvalidArgumentError: No OpKernel was registered to support Op 'ConfigureDistributedTPU' "
        "used by {{node ConfigureDistributedTPU}} with these attrs: "
        '[enable_whole_mesh_compilations=false, tpu_embedding_config=""]\n'
        "Registered devices: [CPU]\nRegistered kernels:\n  <no registered kernels>",
    ),
    (
        "TensorFlow has no TPU inside",
        "tensorflow/tensorflow#33307",
        "No OpKernel was registered to support Op 'TPUReplicateMetadata' used by node "
        "TPUReplicateMetadata with these attrs: [num_cores_per_replica=1, use_tpu=true]",
    ),
    (
        "No TPU at this address",
        "GoogleCloudPlatform/ml-testing-accelerators#809",
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: No matching devices found "
        "for '/device:TPU_SYSTEM:0' [Op:__inference__tpu_init_fn_10]",
    ),
    (
        "No TPU at this address",
        "salesforce/ctrl#8",
        "RuntimeError: Cannot find any TPU cores in the system (master address ). This usually "
        "means the master address is incorrect or the TPU worker has some problems.",
    ),
    (
        "No TPU at this address",
        "TensorFlow 2.20, a worker without TPU",
        "NotFoundError: TPUs not found in the cluster. Failed in initialization: "
        "/job:worker/replica:0/task:0/device:TPU_SYSTEM:0 unknown device. "
        "[Op:__inference__tpu_init_fn_4]",
    ),
    (
        "TPUStrategy before the TPU was initialised",
        "TensorFlow 2.20",
        'File "/usr/lib/python3/dist-packages/tensorflow/python/distribute/tpu_strategy.py", line '
        "875, in __init__\nIndexError: index 0 is out of bounds for axis 0 with size 0",
    ),
    (
        "The resolver doesn't know which TPU",
        "tensorflow/tensorflow#70827",
        "I get:\nValueError: Please provide a TPU Name to connect to.\n\nIm getting this while "
        "running on a colab TPU instance.",
    ),
    (
        "The TPU's name can't be looked up",
        "google-research/bert#518",
        'File "tpu_cluster_resolver.py", line 88, in _requestComputeMetadata\n'
        '  File "/usr/lib/python3.6/urllib/request.py", line 1320, in do_open\n'
        "urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>",
    ),
    (
        "A TPU's name needs one more package",
        "TensorFlow 2.20",
        "RuntimeError: Missing runtime dependency on the Google API client. Run `pip install "
        "cloud-tpu-client` to fix.",
    ),
    (
        "No TensorFlow on Colab's TPU machine",
        "googlecolab/colabtools#5185",
        "----> 1 import tensorflow as tf\n\n\x1b[0;31mModuleNotFoundError\x1b[0m: No module named "
        "'tensorflow'",
    ),
    (
        "Python on a TPU Node",
        "tensorflow/tensorflow#39030",
        "NotFoundError: {{function_node __inference_train_function_128421}} No registered "
        "'PyFunc' OpKernel for 'CPU' devices compatible with node {{node PyFunc}}\n"
        "\t.  Registered:  <no registered kernels>",
    ),
    (
        "The worker can't call back",
        "googlecolab/colabtools#1886",
        "UnavailableError: {{function_node __inference_train_function_34573}} failed to connect "
        "to all addresses\nAdditional GRPC error information from remote target "
        "/job:localhost/replica:0/task:0/device:CPU:0:",
    ),
    (
        "The worker can't call back",
        "tensorflow/tensorflow#39122",
        'Error when trying to run on TPU - "Failed to connect to all addresses"',
    ),
    (
        "A dataset that stayed on your machine",
        "tensorflow/tensorflow#33747",
        "Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to "
        "/job:worker/replica:0/task:0/device:CPU:0 in order to run AutoShardDataset: Unable to "
        "parse tensor proto",
    ),
    (
        "The TPU went away",
        "tensorflow/tensorflow#46007",
        'grpc_remote_master.cc:160] RPC failed with status = "Unavailable: Socket closed" and '
        'grpc_error_string = "{"description":"Error received from peer ipv4:10.180.83.2:8470"',
    ),
    (
        "Two versions of TensorFlow",
        "tensorflow/tensorflow#32712",
        "NotFoundError: Op type not registered 'RebatchDataset' in binary running on "
        "n-f4303a18-w-0. Make sure the Op and Kernel are registered in the binary running in "
        "this process.",
    ),
    (
        "Another program holds the TPU",
        "pytorch/xla#3214",
        "libtpu.so already in used by another process. Not attempting to load libtpu.so in this "
        "process.",
    ),
    (
        "Another program holds the TPU",
        "jax-ml/jax#13260",
        "jaxlib.xla_extension.XlaRuntimeError: NOT_FOUND: No ba16c7433 device found.",
    ),
    (
        "Another program holds the TPU",
        "libtpu 0.0.51",
        "ABORTED: Internal error when accessing libtpu multi-process lockfile",
    ),
    (
        "Strings on the TPU",
        "tensorflow/tensorflow#60092",
        "InvalidArgumentError: Unsupported data type for TPU: string, caused by output Pad_1:0 "
        "[Op:__inference_train_function_67882]",
    ),
    (
        "Strings on the TPU",
        "google-research/text-to-text-transfer-transformer#291",
        "TypeError: <dtype: 'string'> is not a supported TPU infeed type. Supported types are: "
        "[tf.float32, tf.int32, tf.complex64, tf.int64, tf.bool, tf.bfloat16, tf.uint32]",
    ),
    (
        "Small whole numbers on the TPU",
        "tensorflow/datasets#832",
        "NotFoundError: No registered 'Identity' OpKernel for TPU devices compatible with node "
        "{{node Identity}}\n\t (OpKernel was found, but attributes didn't match) Requested "
        'Attributes: T=DT_UINT8, _device="/job:worker/replica:0/task:1/device:TPU:0"',
    ),
    (
        "64 bits that the TPU lacks",
        "libtpu 0.0.51",
        "UNIMPLEMENTED: While rewriting computation to not contain X64 element types, XLA "
        "encountered an HLO for which this rewriting is not implemented",
    ),
    (
        "The memory of the TPU, wasted by its layout",
        "DifferentiableUniverseInitiative/flowpm#27",
        "Compilation failure: Ran out of memory in memory space hbm. Used 41.74G of 16.00G hbm.\n"
        "     Shape: s32[8388608,8,4]{2,1,0:T(8,128)}\n     Unpadded size: 1.00G\n"
        "     Extra memory due to padding: 31.00G (32.0x expansion)",
    ),
    (
        "The memory of the TPU",
        "tensorflow/tpu#385",
        "Compilation failure: Ran out of memory in memory space hbm. Used 8.38G of 8.00G hbm. "
        "Exceeded hbm capacity by 385.25M.",
    ),
    (
        "The memory of the TPU",
        "libtpu 0.0.51",
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: total memory required for HLO temporaries "
        "(20.49G) exceeds available HBM (7.48G)",
    ),
    (
        "A dynamic dimension",
        "keras-team/keras-hub#443",
        "(0) INVALID_ARGUMENT: {{function_node __inference_train_function_16010}} Reshape's input "
        "dynamic dimension is decomposed into multiple output dynamic dimensions, but the "
        "constraint is ambiguous and XLA can't infer the output dimension",
    ),
    (
        "A dynamic dimension",
        "googlecolab/colabtools#1491",
        "Compilation failure: Dynamic shape is not supported for non trivial window",
    ),
    (
        "A dynamic dimension",
        "tensorflow/tensorflow#41899",
        "UnimplementedError: {{function_node __inference_train_function_66860}} Compilation "
        "failure: CustomCall is not supported to have a dynamic dimension",
    ),
    (
        "A size that is known too late",
        "tensorflow/tensorflow#55973",
        "(2) INVALID_ARGUMENT:  Input 1 to node `RaggedReduceMean/RaggedReduceSum/Repeat/Tile` "
        "with op Tile must be a compile-time constant.",
    ),
    (
        "An operation that XLA doesn't have",
        "leondgarse/keras_cv_attention_models#8",
        "(0) Invalid argument: {{function_node __inference_train_function_137027}} Compilation "
        "failure: Detected unsupported operations when trying to compile graph "
        "cluster_train_function_5876961707884240013[] on XLA_TPU_JIT: ExtractImagePatches",
    ),
    (
        "A Python if on a tensor",
        "TensorFlow 2.20",
        "OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool` is not "
        "allowed. You can attempt the following resolutions to the problem",
    ),
    (
        "jit_compile under a strategy",
        "keras-team/tf-keras#385",
        "RuntimeError: `merge_call` called while defining a new graph or a tf.function. This can "
        "often happen if the function `fn` passed to `strategy.run()` contains a nested",
    ),
    (
        "jit_compile under a strategy",
        "TensorFlow 2.20",
        "InvalidArgumentError: Graph execution error:\nTrying to access resource "
        "dense/kernel/replica_1/9 located in device /job:localhost/replica:0/task:0/device:CPU:1 "
        "from device /job:localhost/replica:0/task:0/device:CPU:0",
    ),
    (
        "Created outside the strategy's scope",
        "tensorflow/tensorflow#55713",
        "ValueError: Trying to create optimizer slot variable under the scope for "
        "tf.distribute.Strategy, which is different from the scope used for the original variable",
    ),
    (
        "Created outside the strategy's scope",
        "google/automl#773",
        "ValueError: `colocate_vars_with` must only be passed a variable created in this "
        "tf.distribute.Strategy.scope(), not: <tf.Variable 'fpn_cells/cell_0/fnode1/WSM:0'>",
    ),
    (
        "A step outside tf.function",
        "tensorflow/tensorflow#41074",
        "NotImplementedError: TPUStrategy.run(fn, ...) does not support pure eager execution. "
        "please make sure the function passed into `strategy.run` is a `tf.function`",
    ),
    (
        "Devices set too late",
        "TensorFlow 2.20",
        "RuntimeError: Virtual devices cannot be modified after being initialized",
    ),
    (
        "A second strategy in one process",
        "TensorFlow 2.20",
        "InvalidArgumentError: Collective ops is aborted by: Shape mismatch in the collective "
        "instance 100. Op at device /job:localhost/replica:0/task:0/device:CPU:1 expected shape "
        "[3] but another member in the group expected shape [7]",
    ),
    (
        "A batch that can't be divided",
        "google-research/bert#67",
        "ValueError: train batch size 6 must be divisible by number of replicas 8",
    ),
    (
        "A batch that can't be divided",
        "tensorflow/tensorflow#32077",
        "InvalidArgumentError: Batch size: 32 is not divisible by num_workers: 3",
    ),
    (
        "A compilation for each shape",
        "tensorflow/tensorflow#27313",
        "INFO:tensorflow:New input shapes; (re-)compiling: mode=train (# of cores 8), "
        "[TensorSpec(shape=(0,), dtype=tf.int32, name='core_id0')]",
    ),
    (
        "A label out of range",
        "TensorFlow 2.20",
        "InvalidArgumentError: Received a label value of -100 which is outside the valid range of "
        "[0, 2).  Label values: -100 [Op:SparseSoftmaxCrossEntropyWithLogits]",
    ),
    (
        "A loss that is not a number",
        "tf-keras 2.20",
        "12/100 [==>...........................] - ETA: 3s - loss: nan - accuracy: 0.0312",
    ),
    (
        "A damaged checkpoint",
        "tensorflow/tensorflow#6644",
        "W tensorflow/core/framework/op_kernel.cc:975] Data loss: file is too short to be an "
        "sstable",
    ),
    (
        "A damaged checkpoint",
        "tensorflow/tensorflow#61449",
        "OP_REQUIRES failed at save_restore_v2_ops.cc:207 : DATA_LOSS: truncated block read",
    ),
    (
        "No checkpoint there",
        "TensorFlow 2.20",
        "NotFoundError: Unsuccessful TensorSliceReader constructor: Failed to find any matching "
        "files for checkpoints/ckpt-3.index",
    ),
    (
        "A damaged TFRecord",
        "TensorFlow 2.20",
        "DataLossError: truncated record at 0' failed with Read less bytes than requested "
        "[Op:IteratorGetNext] name: ",
    ),
    (
        "transformers without TensorFlow",
        "transformers 5",
        "ImportError: cannot import name 'TFBertForMaskedLM' from 'transformers'",
    ),
    (
        "Keras 3 under transformers",
        "huggingface/transformers#36410",
        "ValueError: Your currently installed version of Keras is Keras 3, but this is not yet "
        "supported in Transformers. Please install the backwards-compatible tf-keras package",
    ),
    (
        "Code of TensorFlow 1",
        "PJunhyuk/people-counting-pose#11",
        "ModuleNotFoundError: No module named 'tensorflow.contrib.tpu.python.tpu.topology",
    ),
    (
        "No TPU free in this zone",
        "thevasudevgupta/gsoc-wav2vec2#11",
        "ERROR: (gcloud.compute.tpus.execution-groups.create) There is no more capacity in the "
        'zone "europe-west4-a"; you can try in another zone where Cloud TPU Nodes are offered',
    ),
    (
        "No TPU free in this zone",
        "skypilot-org/skypilot#4579",
        "Got return code 8 in us-central1-a: 'Insufficient reserved capacity. Contact customer "
        "support to increase your reservation. [EID: 0x7adf6d58c08b0aa4]'",
    ),
    (
        "No quota for this TPU",
        "marin-community/marin#1612",
        "returned \"Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been "
        'exceeded. Limit: 0 in region us-east5."',
    ),
]

UNRELATED = [
    "KeyError: 'loss'",
    "ZeroDivisionError: division by zero",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/ko.txt'",
    "ModuleNotFoundError: No module named 'tensorflow_text'",
    "ModuleNotFoundError: No module named 'tensorflow.keras'",
    "ImportError: cannot import name 'BertTokenizer' from 'transformers' (unknown location)",
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8080): Max "
    "retries exceeded with url: / (Caused by NewConnectionError: Connection refused)",
    "IndexError: index 0 is out of bounds for axis 0 with size 0",
    "InvalidArgumentError: indices[0] = 5 is not in [0, 2) [Op:GatherV2]",
    "RuntimeError: You must compile your model before training/testing.",
    "MemoryError: Unable to allocate 20.0 GiB for an array with shape (2684354560,)",
    "ResourceExhaustedError: OOM when allocating tensor with shape[4096,30522] and type float",
    "InvalidArgumentError: Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3] [Op:MatMul]",
    "ValueError: Shapes (None, 3) and (None, 2) are incompatible",
    "12/100 [==>...........................] - ETA: 3s - loss: 0.6931 - nans_seen: 0",
    "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
    "InternalError: Failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
    "UserWarning: Converting sparse IndexedSlices to a dense Tensor of unknown shape.",
    "OSError: [Errno 28] No space left on device: 'shard-00003.tfrecord'",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "No registered 'Foo' OpKernel for 'CPU' devices compatible with node {{node Foo}}",
    "Compiled cluster using XLA!  This line is logged at most once for the lifetime of the "
    "process.",
    "batch_size 32, divisible by 8",
    "jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced array",
    "",
]


def ids(value):
    return re.sub(r"\W+", "_", value)[:40] if isinstance(value, str) else None


@pytest.mark.parametrize(("name", "source", "message"), MESSAGES, ids=ids)
def test_a_real_message_is_explained_first_by_its_own_symptom(name, source, message):
    first = explain(message).matches[0]
    assert first.symptom.name == name


def test_every_symptom_has_a_real_message():
    assert {symptom.name for symptom in SYMPTOMS} - {name for name, _, _ in MESSAGES} == set()
    assert len(SYMPTOMS) >= 26


def test_no_symptom_is_there_twice():
    assert len({symptom.name for symptom in SYMPTOMS}) == len(SYMPTOMS)


@pytest.mark.parametrize("message", UNRELATED, ids=ids)
def test_an_unrelated_error_is_not_explained(message):
    assert not explain(message)
    assert repr(explain(message)) == module.NOTHING


def test_every_symptom_names_its_thread_or_notebook_and_a_lesson():
    for symptom in SYMPTOMS:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|notebook 0\d", symptom.source), symptom.name
        assert re.fullmatch(r"0[0-8]", symptom.lesson), symptom.name
        assert symptom.cause.endswith(".") and symptom.fix.rstrip(")").endswith((".", "'"))


@tf.function(jit_compile=True)
def string_under_xla(x):
    return tf.strings.length(tf.strings.as_string(x))


@tf.function(jit_compile=True)
def size_under_xla(x):
    return tf.range(tf.reduce_sum(x))


@tf.function(autograph=False)
def python_if(x):
    return x if tf.reduce_sum(x) > 0 else -x


def label_out_of_range():
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[-100], logits=[[1.0, 2.0]])


def tpu_here():
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.tpu.experimental.initialize_tpu_system(resolver)


def strategy_here():
    tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local"))


def checkpoint_missing():
    tf.train.Checkpoint(v=tf.Variable(1.0)).read("nowhere/ckpt-1")


@pytest.mark.parametrize(
    ("name", "fail"),
    [
        (
            "The resolver doesn't know which TPU",
            lambda: tf.distribute.cluster_resolver.TPUClusterResolver(),
        ),
        ("TensorFlow has no TPU inside", tpu_here),
        ("TPUStrategy before the TPU was initialised", strategy_here),
        ("Code of TensorFlow 1", lambda: tf.contrib),
        ("Code of TensorFlow 1", lambda: tf.compat.v1.estimator),
        ("An operation that XLA doesn't have", lambda: string_under_xla(tf.constant([1]))),
        (
            "A size that is known too late",
            lambda: size_under_xla.experimental_get_compiler_ir(tf.TensorSpec([2], "int32"))("hlo"),
        ),
        ("A Python if on a tensor", lambda: python_if(tf.constant([1.0]))),
        ("A label out of range", label_out_of_range),
        ("No checkpoint there", checkpoint_missing),
    ],
    ids=ids,
)
def test_what_tensorflow_raises_today_is_explained(name, fail, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(Exception) as caught:
        fail()
    assert explain(caught.value).matches[0].symptom.name == name


def test_a_name_that_cannot_be_looked_up_is_explained(monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(OSError) as caught:
        tf.distribute.cluster_resolver.TPUClusterResolver("my-tpu")
    assert explain(caught.value).matches[0].symptom.name == "The TPU's name can't be looked up"


def test_a_damaged_checkpoint_is_explained(tmp_path):
    prefix = tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000]))).write(str(tmp_path / "ckpt"))
    data = tmp_path / "ckpt.data-00000-of-00001"
    damaged = bytearray(data.read_bytes())
    damaged[50] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(tf.errors.DataLossError) as caught:
        tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000]))).read(prefix)
    assert explain(caught.value).matches[0].symptom.name == "A damaged checkpoint"


def test_what_led_to_an_error_is_searched_too():
    try:
        try:
            raise ValueError("Please provide a TPU Name to connect to.")
        except ValueError as cause:
            raise RuntimeError("the training could not start") from cause
    except RuntimeError as error:
        assert explain(error).matches[0].symptom.name == "The resolver doesn't know which TPU"


def test_an_error_whose_source_line_quotes_a_message_is_not_mistaken():
    try:
        raise KeyError("nothing")  # Please provide a TPU Name to connect to.
    except KeyError as error:
        assert not explain(error)


def test_an_error_that_led_to_itself_is_searched_once():
    error = ValueError("Socket closed")
    error.__context__ = other = RuntimeError("other")
    other.__context__ = error
    assert explain(error).matches[0].symptom.name == "The TPU went away"


def test_at_most_three_symptoms_are_shown_and_long_lines_are_cut():
    log = "\n".join(message for _, _, message in MESSAGES)
    found = explain(log)
    assert len(found.matches) == 3
    assert all(len(match.evidence) <= 160 for match in found.matches)
    (long,) = explain("x" * 500 + " Socket closed").matches
    assert long.evidence.endswith("…")


def test_it_reads_well():
    assert repr(explain("ValueError: Please provide a TPU Name to connect to.")) == (
        "The resolver doesn't know which TPU\n"
        "  Seen: ValueError: Please provide a TPU Name to connect to.\n"
        "  Why: TPUClusterResolver() looks at TPU_NAME and found nothing. It never looks at "
        "COLAB_TPU_ADDR, and a TPU VM sets no name.\n"
        "  Fix: On a TPU VM (Colab and Kaggle today): TPUClusterResolver(tpu='local').\n"
        "  More: notebook 04; tensorflow/tensorflow#70827"
    )


def test_the_page_is_escaped():
    shown = explain("<b>Socket closed</b>")._repr_html_()
    assert "&lt;b&gt;Socket closed" in shown and "<b>" not in shown
    assert explain("?")._repr_html_().startswith("<p>No known symptom")


def test_an_error_of_the_course_explains_itself():
    found = explain(CourseError("It broke.", "It was old.", "Buy a new one."))
    assert isinstance(found, Explanation) and found
    assert repr(found) == "It broke.\n  Why: It was old.\n  Fix: Buy a new one."


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("Socket closed\n", 0, "The TPU went away"),
        ("all is well\n", 1, "No known symptom"),
        ("", 1, "No known symptom"),
    ],
)
def test_the_command_reads_a_log(text, status, said):
    result = CliRunner().invoke(app, ["explain"], input=text)
    assert (result.exit_code, said in result.stdout) == (status, True)


def test_the_page_of_all_symptoms_is_up_to_date():
    kept = (ROOT / "notebooks/TROUBLESHOOTING.md").read_text("utf-8")
    assert kept == module.page(), "python -m helpers explain --page > notebooks/TROUBLESHOOTING.md"
    assert CliRunner().invoke(app, ["explain", "--page"]).stdout == kept


def test_the_page_has_a_line_for_each_symptom_that_markdown_reads_as_written():
    from markdown_it import MarkdownIt

    tokens = MarkdownIt().enable("table").parse(module.page())
    cells = [token.children for token in tokens if token.type == "inline"]
    shown = {"".join(part.content for part in children or ()) for children in cells}
    for symptom in SYMPTOMS:
        assert symptom.name in shown
        assert symptom.fix.replace("`", "") in shown, symptom.fix


def test_the_command_reads_bytes_that_are_no_text():
    result = CliRunner().invoke(app, ["explain"], input=b"\xff\xfe Socket closed \xff")
    assert result.exit_code == 0


def test_explain_after_a_failed_cell_in_a_notebook():
    cells = [
        "import sys; sys.path.insert(0, '.')\n%load_ext helpers.course.explain\n%explain",
        "raise ValueError('Please provide a TPU Name to connect to.')",
        "%explain",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(
        notebook, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": ROOT}}
    ).execute()
    assert "No cell has failed yet." in notebook.cells[0].outputs[0]["text"]
    (shown,) = notebook.cells[2].outputs
    assert shown["data"]["text/plain"].startswith("The resolver doesn't know which TPU")
    assert "<strong>" in shown["data"]["text/html"]


def test_it_needs_no_tensorflow():
    code = "import sys, helpers.course.explain; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
