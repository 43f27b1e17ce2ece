"""Studies with one data token on real workers: what one has trained, the other does not train."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from penstock import FullBudget, Limits, Share, Steps, create_study, storage
from user_code.trainees import Stepped

pytestmark = [pytest.mark.integration, pytest.mark.extension("prefixes")]

#: No trial of these studies is a check.
NAMES = ("first", "second", "third")
EPOCHS = 6


def begun(name, token, pieces):
    study = create_study(
        study_name=name,
        direction="maximize",
        metric="accuracy",
        sampler="grid",
        strategy=FullBudget(EPOCHS),
        seeding="shared",
        share=Share(data_token=token),
        limits=Limits(keep_checkpoints=99),
    )
    lr = Steps({0: [0.1, 0.05], 3: pieces})
    study.optimize(Stepped, {"lr": lr, "weight": [1.0], "weight_decay": [0.0]}, show_progress=False)
    return study


def epochs_of(site, study):
    """Hash and source by parameters and epoch."""
    params = {each.id: tuple(each.params.items()) for each in site.reader.trials(study.id)}
    rows = site.reader.epochs(study.id)
    return {(params[row.trial], row.epoch): (row.state_hash, row.taken_from) for row in rows}


@pytest.mark.extension("report")
def test_a_second_study_trains_no_epoch_of_equal_trials_and_has_their_bits(site, tmp_path):
    first = begun(NAMES[0], "points", [0.01, 0.02])
    site.until(lambda: len(site.reader.durables(first.id)) == 4, "the last states are durable")
    trained = epochs_of(site, first)

    second = begun(NAMES[1], "points", [0.01, 0.02])
    taken = epochs_of(site, second)
    assert trained.keys() == taken.keys() and len(taken) == 4 * EPOCHS
    for key, (state_hash, source) in taken.items():
        assert state_hash == trained[key][0]
        assert source.startswith(first.id), key
    facts = json.loads(site.penstock("prefixes", second.id, "--json"))
    assert (facts["trained"], facts["taken"]) == (0, 24)
    assert facts["from_others"] == {first.id: 24}
    told = " ".join(site.penstock("prefixes", second.id).split())
    assert f"24 were taken over from trials of study {first.study_name}" in told
    told = " ".join(site.penstock("story", f"{second.id}/0").split())
    assert f"taken over from trial 0 of study {first.study_name}, which trained" in told

    assert json.loads(site.penstock("status", second.id, "--json"))["usage"] is None
    assert "24/24 epochs 4/4" in " ".join(site.penstock("status", second.id).split())
    site.penstock("report", second.id, "-o", str(tmp_path / "report.html"))
    assert "taken over" in (tmp_path / "report.html").read_text()

    # Its states are its own: the other study may go.
    files = {row.uri for row in site.reader.durables(second.id)}
    assert files == {row.uri for row in site.reader.durables(first.id)} and len(files) == 4
    optuna.delete_study(study_name=first.study_name, storage=storage())
    site.penstock("gc")
    assert all(Path(uri.removeprefix("file://")).is_file() for uri in files)

    third = begun(NAMES[2], "points, cleaned", [0.01, 0.02])
    alone = epochs_of(site, third)
    assert {key: each[0] for key, each in alone.items()} == {
        key: each[0] for key, each in trained.items()
    }
    assert not any(source.startswith(second.id) for _, source in alone.values())


def test_a_second_study_begins_where_the_first_one_parted(site):
    first = begun("parts", "points", [0.01])
    site.until(lambda: len(site.reader.durables(first.id)) == 2, "the last states are durable")
    longer = create_study(
        study_name="longer", direction="maximize", metric="accuracy", sampler="grid",
        strategy=FullBudget(EPOCHS + 2), seeding="shared", share=Share(data_token="points"),
    )  # fmt: skip
    space = {"lr": Steps({0: [0.1, 0.05], 3: [0.01]}), "weight": [1.0], "weight_decay": [0.0]}
    longer.optimize(Stepped, space, show_progress=False)
    found = epochs_of(site, longer)
    assert {epoch for (_, epoch), (_, source) in found.items() if not source} == {7, 8}
    alone = create_study(
        study_name="alone", direction="maximize", metric="accuracy", sampler="grid",
        strategy=FullBudget(EPOCHS + 2), seeding="shared",
    )  # fmt: skip
    alone.optimize(Stepped, space, show_progress=False)
    assert {key: each[0] for key, each in epochs_of(site, alone).items()} == {
        key: each[0] for key, each in found.items()
    }
