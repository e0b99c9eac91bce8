"""The PyTorch side of the benchmark `pretraining`: run by `make pytorch`'s Python, asked by lines.

It knows no TensorFlow and nothing of the helpers. A line of JSON in, a line of JSON out: a model
is made, or does some steps and says how long they took.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from benchmarks.measure import Clock

Batch = dict[str, torch.Tensor]


def padded_loss(model: BertForMaskedLM, batch: Batch) -> torch.Tensor:
    """Compute the loss as transformers does: the head at every place."""
    return model(**batch).loss


def packed_loss(model: BertForMaskedLM, batch: Batch) -> torch.Tensor:
    """Compute the loss of packed rows, last layer and head at the masked places alone."""
    sequence, places = batch["attention_mask"], batch["masked_positions"]
    allowed = (sequence[:, None, :, None] == sequence[:, None, None, :]).bool()
    hidden = model.bert.embeddings(batch["input_ids"], position_ids=batch["position_ids"])
    *layers, last = model.bert.encoder.layer
    for layer in layers:
        hidden = layer(hidden, allowed)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    rows = torch.arange(len(places))[:, None]
    chosen = last_layer(last, hidden, hidden[rows, places], allowed[rows, 0, places][:, None])
    used = batch["masked_weights"] > 0  # eager needs no fixed number of places
    scores = model.cls(chosen[used])
    return torch.nn.functional.cross_entropy(scores, batch["masked_ids"][used])


def last_layer(
    layer: torch.nn.Module, hidden: torch.Tensor, chosen: torch.Tensor, allowed: torch.Tensor
) -> torch.Tensor:
    """Compute a layer at chosen places, which attend to all."""
    attention = layer.attention.self

    def heads(values: torch.Tensor) -> torch.Tensor:
        return values.unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)

    context = torch.nn.functional.scaled_dot_product_attention(
        heads(attention.query(chosen)),
        heads(attention.key(hidden)),
        heads(attention.value(hidden)),
        attn_mask=allowed,
        dropout_p=attention.dropout.p if layer.training else 0.0,
    )
    attended = layer.attention.output(context.transpose(1, 2).flatten(2), chosen)
    return layer.output(layer.intermediate(attended), attended)


LOSSES = {"padded": padded_loss, "packed": packed_loss}


def trained(way: str, config: dict, batch: Batch) -> Callable[[int], Clock]:
    """Make a model and its optimizer, as those of the benchmark `pretraining`."""
    model = BertForMaskedLM(BertConfig(**config)).train()
    named = list(model.named_parameters())
    whole = [weight for name, weight in named if "bias" in name or "LayerNorm" in name]
    decayed = [weight for name, weight in named if "bias" not in name and "LayerNorm" not in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": whole, "weight_decay": 0.0}],
        lr=1e-4,
        eps=1e-6,
        fused=True,
    )

    def steps(count: int) -> Clock:
        start = Clock.now()
        for _ in range(count):
            optimizer.zero_grad()
            loss = LOSSES[way](model, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            float(loss.detach())
        return Clock.now().since(start)

    return steps


def main(path: str, threads: int) -> None:
    """Answer until the input ends."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batches: dict[str, Batch] = {way: {} for way in LOSSES}
    for key, values in np.load(path).items():
        way, name = key.split("/")
        kind = torch.long if values.dtype == np.int32 else torch.float32
        batches[way][name] = torch.from_numpy(values).to(kind)
    models: list[Callable[[int], Clock]] = []
    print(json.dumps(torch.__version__), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if "steps" in question:
            took = models[question["model"]](question["steps"])
            answer = (took.wall, took.cpu)
        else:
            way = question["way"]
            models.append(trained(way, question["config"], batches[way]))
            answer = len(models) - 1
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
