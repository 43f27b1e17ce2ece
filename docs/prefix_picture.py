"""Draw the picture of docs/density.md: python docs/prefix_picture.py."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from penstock.extensions.prefixes.picture import tree_picture
from penstock.extensions.prefixes.tree import tree, way_of
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec
from penstock.scheduler.model.trial import Trial, TrialState

PICTURE = Path(__file__).parent / "img" / "prefixes.svg"
EPOCHS = 27
#: A grid: the values of each piece of a schedule.
PIECES = {"lr": (0.1, 0.03, 0.01), "lr@9": (0.03, 0.003), "lr@18": (0.003, 0.001)}
#: The style of the report's page.
STYLE = (
    "svg{color:#16202b}text{font:12px system-ui,sans-serif;fill:#4b5866}line{stroke:#e9edf1}"
    ".e{text-anchor:end}.m{text-anchor:middle}"
)


def main() -> None:
    """Write the picture."""
    spec = StudySpec(
        id="grid",
        name="grid",
        contract="torch",
        code=Code("", "", ""),
        metric="loss",
        direction="minimize",
        n_trials=12,
        space=(),
        strategy=StrategySpec("full", max_epochs=EPOCHS),
        seeding="shared",
    )
    trials = [
        Trial(
            id="",
            study="grid",
            number=number,
            params=tuple(zip(PIECES, values, strict=True)),
            created_at=0.0,
            state=TrialState.COMPLETED,
            epoch=EPOCHS,
        )
        for number, values in enumerate(product(*PIECES.values()))
    ]
    drawn = tree_picture(tree(way_of(spec, trial) for trial in trials))
    head, _, body = drawn.partition(">")
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    page = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    PICTURE.write_text(f"{head}>{page}{body}\n")


if __name__ == "__main__":
    main()
