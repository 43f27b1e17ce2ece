"""A recurrent model of words on WikiText-2, with the hyperparameters that Fluid tuned.

    PENSTOCK_DATA=<folder> python examples/word_model.py

Reads ``wikitext2/valid.txt`` and ``wikitext2/test.txt`` there (WikiText-2's word-level splits).
It trains on the *valid* split and is evaluated on the *test* split, on the ``VOCABULARY`` most
frequent words; each sequence begins with an empty state. So its perplexities (the exponential of
``loss``) compare with each other, not with published ones.
"""

import os
from collections import Counter
from functools import cache
from pathlib import Path

import penstock
import torch
from torch import nn
from torch.utils.data import TensorDataset

FILES = ("wikitext2/valid.txt", "wikitext2/test.txt")
VOCABULARY = 2000
SPACE = {
    "model": ["RNN_TANH", "RNN_RELU", "LSTM", "GRU"],
    "batch_size": penstock.Int(10, 30),
    "bptt": penstock.Int(30, 40),
    "clip": penstock.Float(0.1, 0.5),
    "half_emsize": penstock.Int(25, 75),
    "nhead": [1, 2],
    "nhid": penstock.Int(100, 300),
    "nlayers": penstock.Int(2, 4),
    "dropout": penstock.Float(0.1, 0.5),
    "lr": penstock.Float(10.0, 30.0),
}


def folder() -> Path:
    """Return the folder of the data."""
    return Path(os.environ.get("PENSTOCK_DATA", "."))


@cache
def words(file: str) -> tuple[str, ...]:
    """All of a split, ends of lines as words of their own."""
    return tuple((folder() / file).read_text().replace("\n", " <eos> ").split())


@cache
def numbered(file: str) -> torch.Tensor:
    """A split as numbers: the most frequent words of what is trained on, 0 for all others."""
    known = {
        word: n for n, (word, _) in enumerate(Counter(words(FILES[0])).most_common(VOCABULARY))
    }
    return torch.tensor([known.get(word, VOCABULARY) for word in words(file)])


class Network(nn.Module):
    """Embedding, recurrent layers, a score for each word."""

    def __init__(self, kind, embedded, hidden, layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY + 1, embedded)
        given = {"num_layers": layers, "dropout": dropout, "batch_first": True}
        if kind in ("LSTM", "GRU"):
            self.recurrent = getattr(nn, kind)(embedded, hidden, **given)
        else:
            nonlinearity = kind.removeprefix("RNN_").lower()
            self.recurrent = nn.RNN(embedded, hidden, nonlinearity=nonlinearity, **given)
        self.dropout = nn.Dropout(dropout)
        self.scores = nn.Linear(hidden, VOCABULARY + 1)

    def forward(self, sequence):
        states, _ = self.recurrent(self.dropout(self.embedding(sequence)))
        return self.scores(self.dropout(states))


class WordModel(penstock.TorchTrainable):
    """Hyperparameters as in ``SPACE``; ``words`` is how many are trained on."""

    def data(self):
        taken = self.params.get("words", 10**9)
        train, test = numbered(FILES[0])[:taken], numbered(FILES[1])[: taken // 4]
        return penstock.Data(train=self.sequences(train), validation=self.sequences(test))

    def sequences(self, numbers):
        """Stretches of ``bptt`` words, each with the words that come next."""
        bptt = self.params["bptt"]
        whole = (len(numbers) - 1) // bptt * bptt
        before, after = numbers[:whole], numbers[1 : whole + 1]
        return TensorDataset(before.reshape(-1, bptt), after.reshape(-1, bptt))

    def model(self):
        p = self.params
        embedded = 2 * p["half_emsize"] * p["nhead"]
        return Network(p["model"], embedded, p["nhid"], p["nlayers"], p["dropout"])

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def clip(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), self.params["clip"])

    def loss(self, model, batch):
        before, after = batch
        return nn.functional.cross_entropy(model(before).flatten(0, 1), after.flatten())

    def metrics(self, model, batch):
        return {"loss": self.loss(model, batch)}


if __name__ == "__main__":
    if absent := [file for file in FILES if not (folder() / file).exists()]:
        raise SystemExit(
            f"no {', '.join(absent)} in {folder()}: name their folder in PENSTOCK_DATA"
        )
    study = penstock.create_study(metric="loss", strategy=penstock.ASHA(max_epochs=9), seed=0)
    study.optimize(WordModel, SPACE, n_trials=9)
    print(f"loss {study.best_value:.3f} with {study.best_params}")
