"""Search a text classifier on 20 Newsgroups, on word vectors that are frozen.

    PENSTOCK_DATA=<folder> python examples/nas_text.py

Reads ``news20/20news-bydate.tar.gz`` there (http://qwone.com/~jason/20Newsgroups). Word vectors are
made of all training messages, without their labels, and computed once for all trials
(``encoder()``). Each layer chooses what it reads and what it does: convolutions, pooling, a
recurrent layer, attention, nothing (Y. Wang et al., TextNAS, AAAI 2020).
"""

import os
import random
import tarfile
from functools import cache, partial
from pathlib import Path

import penstock
import torch
from penstock import nas
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import nn
from torch.utils.data import TensorDataset

FILE = "news20/20news-bydate.tar.gz"
#: Number of the most frequent words, which have vectors; words read of each message; vectors' size.
VOCABULARY, WORDS, WIDTH = 8000, 64, 32
EXAMPLES, LAYERS = 4000, 4


@cache
def messages():
    """(text, group) of the training and of the test messages, in an order by chance."""
    parts = {"train": [], "test": []}
    with tarfile.open(Path(os.environ.get("PENSTOCK_DATA", ".")) / FILE) as archive:
        for each in archive:
            if each.isfile():
                part, group, _ = each.name.split("/")
                text = archive.extractfile(each).read().decode("latin-1")
                parts[part.rpartition("-")[2]].append((text.partition("\n\n")[2], group))
    for each in parts.values():
        random.Random(0).shuffle(each)
    return parts["train"], parts["test"]


@cache
def vocabulary():
    """Return the vectorizer that splits texts, and vectors: near for words that occur together."""
    counts = TfidfVectorizer(max_features=VOCABULARY, sublinear_tf=True, stop_words="english")
    table = counts.fit_transform(text for text, _ in messages()[0])
    vectors = torch.tensor(TruncatedSVD(WIDTH, n_iter=2, random_state=0).fit(table).components_.T)
    vectors = nn.functional.normalize(vectors.float()) * WIDTH**0.5
    return counts, torch.cat([torch.zeros(1, WIDTH), vectors])  # 0 is no word


class Turned(nn.Module):
    """A recurrent layer or attention, which want words before channels."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        x = x.transpose(1, 2)
        made, _ = self.layer(x) if isinstance(self.layer, nn.GRU) else self.layer(x, x, x)
        return made.transpose(1, 2)


def conv(kernel):
    return nn.Sequential(nn.Conv1d(WIDTH, WIDTH, kernel, padding=kernel // 2), nn.ReLU())


def operations():
    return {
        **{f"conv{kernel}": partial(conv, kernel) for kernel in (1, 3, 5, 7)},
        "max3": lambda: nn.MaxPool1d(3, 1, 1),
        "average3": lambda: nn.AvgPool1d(3, 1, 1),
        "gru": lambda: Turned(nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)),
        "attention": lambda: Turned(nn.MultiheadAttention(WIDTH, 2, batch_first=True)),
        "skip": nn.Identity,
    }


class Net(nas.ModelSpace):
    """Layers that each read an earlier one; all of them together give the scores."""

    def __init__(self):
        super().__init__()
        layers = range(LAYERS)
        self.inputs = nn.ModuleList(nas.InputChoice(i + 1, label=f"input{i}") for i in layers)
        self.layers = nn.ModuleList(nas.LayerChoice(operations(), label=f"op{i}") for i in layers)
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in layers)
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(2 * WIDTH, 20))

    def forward(self, words):
        states = [words.transpose(1, 2)]
        for chosen, layer, norm in zip(self.inputs, self.layers, self.norms, strict=True):
            states.append(norm(layer(chosen(states))))
        x = sum(states)
        return self.head(torch.cat([x.mean(2), x.amax(2)], 1))


class News(penstock.TorchTrainable):
    """Hyperparameters: lr, and the choices of ``Net``; ``examples`` are trained on."""

    batch_size = 64

    def data(self):
        counts, _ = vocabulary()
        split, known = counts.build_analyzer(), counts.vocabulary_
        groups = sorted({group for _, group in messages()[0]})

        def read(part):
            rows = [[known[w] + 1 for w in split(text) if w in known][:WORDS] for text, _ in part]
            padded = torch.tensor([row + [0] * (WORDS - len(row)) for row in rows])
            return TensorDataset(padded, torch.tensor([groups.index(group) for _, group in part]))

        count = self.params.get("examples", EXAMPLES)
        train, test = messages()
        return penstock.Data(read(train[:count]), read(test[: count // 4]))

    def encoder(self):
        return nn.Embedding.from_pretrained(vocabulary()[1]).eval()

    def model(self):
        return nas.build(Net, self.params)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        words, groups = batch
        return nn.functional.cross_entropy(model(words), groups)

    def metrics(self, model, batch):
        words, groups = batch
        return {"accuracy": (model(words).argmax(1) == groups).float().mean()}


def space():
    """The choices of ``Net`` and the learning rate."""
    return nas.space(Net) | {"lr": penstock.Float(1e-3, 1e-2, log=True)}


if __name__ == "__main__":
    print(f"{nas.size(nas.space(Net)):,} architectures")
    study = penstock.create_study(
        direction="maximize", metric="accuracy", strategy=penstock.ASHA(max_epochs=9), seed=0
    )
    study.optimize(News, space(), n_trials=16)
    print(f"accuracy {study.best_value:.3f} with {study.best_params}")
