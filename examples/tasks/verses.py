"""Next character: each client reads a sonnet of Shakespeare's (1609), and learns what comes next.

    fl-lab run --task next-token --client-data verses:read --model verses:make \
        --input-shape 32 --classes 28 --clients 4 --epochs 5 --lr 1 --batch-size 8
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

LETTERS = " abcdefghijklmnopqrstuvwxyz\n"
POSITIONS = 32


def read(client: str) -> dict[str, NDArray[np.int64]]:
    """Return pieces of a client's sonnet as tokens; what follows each of them is the next one itself."""
    sonnets = Path(__file__).with_name("sonnets.txt").read_text("utf-8").lower().split("\n\n")
    text = sonnets[int(client.strip("c")) % len(sonnets)]
    tokens = np.array([LETTERS.index(one) for one in text if one in LETTERS])
    pieces = np.stack([tokens[start : start + POSITIONS] for start in range(0, len(tokens) - POSITIONS, 8)])
    return {"x": pieces[:-8], "x_test": pieces[-4:]}  # those between share letters with both


class Reader(nn.Module):
    """What was read so far, in a GRU; then a number for every letter."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, 16)
        self.reads = nn.GRU(16, 48, batch_first=True)
        self.head = nn.Linear(48, letters)

    def forward(self, x: Tensor) -> Tensor:
        read, _ = self.reads(self.letters(x))
        said: Tensor = self.head(read)
        return said


def make(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Reader(classes)


def continued(model: nn.Module, begin: str, count: int) -> str:
    """Return a text and what the model thinks comes after it."""
    text = begin
    for _ in range(count):
        tokens = torch.tensor([[LETTERS.index(one) for one in text[-POSITIONS:]]])
        text += LETTERS[int(model(tokens)[0, -1].argmax())]
    return text
