"""The PyTorch side of the benchmark `pretraining`: run by the Python of `make libraries`.

It knows no TensorFlow and nothing of the helpers. A line of JSON in, a line of JSON out: a
configuration makes a model, whose number is the answer; ``[number, steps]`` does some steps and
gives the seconds that they took, by the wall and of all processors.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from benchmarks.measure import Clock


def trained(config: dict, batch: dict[str, torch.Tensor]) -> Callable[[int], Clock]:
    """Make a model and its optimizer, as those of the benchmark `pretraining`."""
    model = BertForMaskedLM(BertConfig(**config)).train()
    decayed = []
    undecayed = []
    for name, weight in model.named_parameters():
        if "bias" in name or "LayerNorm" in name:
            undecayed.append(weight)
        else:
            decayed.append(weight)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": undecayed, "weight_decay": 0.0}],
        lr=1e-4,
        eps=1e-6,
        fused=True,
    )

    def steps(count: int) -> Clock:
        start = Clock.now()
        for _ in range(count):
            optimizer.zero_grad()
            loss = model(**batch).loss
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
    batch = {name: torch.from_numpy(values).long() for name, values in np.load(path).items()}
    models: list[Callable[[int], Clock]] = []
    for line in sys.stdin:
        question = json.loads(line)
        if isinstance(question, dict):
            models.append(trained(question, batch))
            answer = len(models) - 1
        else:
            number, count = question
            clock = models[number](count)
            answer = (clock.wall, clock.cpu)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
