from penstock import nas
from penstock.extensions.nas.graphs.derivation import described
from torch import nn


class Untraceable(nas.ModelSpace):
    """A model that looks at values, so its parts are told by their classes."""

    def __init__(self):
        super().__init__()
        linear = {"a": lambda: nn.Linear(4, 4), "b": nn.Identity}
        self.op = nas.LayerChoice(linear, "op")
        self.blocks = nas.Repeat(lambda _: nn.Linear(4, 4), (1, 2), "depth")
        self.inputs = nas.InputChoice(2, label="inputs")

    def forward(self, x):
        if x.sum() > 0:
            x = self.op(x)
        return self.blocks(self.inputs([x, x]))


def test_digests_stay_what_they_were_when_models_were_first_recorded(monkeypatch):
    monkeypatch.setattr(Untraceable, "__module__", "anywhere")
    model = nas.build(Untraceable, {"op": "a", "depth": 2, "inputs": 1})
    # As the release 0.2 gave it, in which these layers were in another package.
    assert described(model)[0].base == (
        "6b49aaeccd50a93e31d80d395ea382b2fee258644457ad17fdec9300948d9f2f"
    )
