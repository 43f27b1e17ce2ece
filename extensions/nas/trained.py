"""The trained model of a trial: its kept state, its parameters, and the code that makes it.

Theory of operation. A checkpoint contains tensors, but no module and no code. So the model is made
as the trial made it: the study's class is imported from its original place, its ``model()`` is
called with the trial's parameters and random numbers, and the log of its mutators is applied. Then
the weights of the checkpoint are loaded. If a script or a notebook sent the code as a pickle, the
code is imported from the script's file or taken from ``__main__``. Nothing is unpickled here.

The code and the address of an imported study come from its file, which can be forged. So they are
not used: the user must name the code and the store.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.ledger.codec import spec_from_json
from ...app.ledger.summary import front_of, ranked
from ...app.show.views.progress import final_metrics, numbers_of
from ...base.errors import UsageError
from ...base.urls import hide_password
from ...base.wording import worded
from ...scheduler.model.study import number_of, replicate_of
from ...scheduler.model.trial import TrialState
from ...tasks.contracts.by_value import PREFIX
from ...tasks.contracts.code import IMPORT_TARGET, Found, walk
from .events import Derived

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...app.client.study.study import Study
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import DurableRow, StudyRow, TrialRow
    from ...scheduler.model.study import StudySpec

#: Seconds: the longest wait for a last state, and the longest time after a study's end in which
#: there is such a wait. A state is written in parallel to training, and may be known only after the
#: study's end.
WAIT, RECENT = 20.0, 60.0
#: The name of a checkpoint's file: the SHA-256 of its bytes.
_FILE = re.compile(r"[0-9a-f]{64}\.pt")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The parts of a trial's model: the place of its code, its state, and facts about the trial."""

    #: The module or script with the code, the folder to import it from, and the code's name in it.
    module: str
    folder: str
    name: str
    #: Facts about the trial (JSON): those that ``extensions.nas.rebuilt`` needs, and others for
    #: people.
    trained: dict[str, Any]
    #: The URI and the hash of the state after the trial's last epoch.
    uri: str
    state_hash: str

    def weights(self) -> dict[str, Tensor]:
        """Return parameters and buffers by name. Raises BackendError if they cannot be read."""
        from ...tasks.checkpoints.checkpoint import load

        weights: dict[str, Tensor] = load(self.uri, self.state_hash)["model"]
        return weights

    def of_code(self, code: str) -> TrainedModel:
        """Return this model with other code: ``FILE.py:NAME`` or ``MODULE:NAME``, from this folder.

        Raises UsageError if ``code`` has another form, and if there is no such file.
        """
        where, _, name = code.rpartition(":")
        file = Path(where).resolve()
        if not where or not name or (where.endswith(".py") and not file.is_file()):
            allowed = "FILE.py:NAME, with the path of a file, or MODULE:NAME"
            raise UsageError.refuse("--code", code, allowed)
        if where.endswith(".py"):
            return replace(self, module=file.stem, folder=str(file.parent), name=name)
        return replace(self, module=where, folder=str(Path.cwd()), name=name)

    def code(self) -> Any:
        """Return the class that makes the model. Raises UsageError if it cannot be imported."""
        main = sys.modules["__main__"]
        script = Path(self.folder, *self.module.split(".")).with_suffix(".py")
        running = Path(getattr(main, "__file__", None) or "").resolve()
        try:
            if running == script or self.module in {"notebook", "console"}:
                return walk(main, self.name)
            if self.folder not in sys.path:
                sys.path.insert(0, self.folder)
            token = IMPORT_TARGET.set(self.name)
            try:
                return walk(import_module(self.module), self.name)
            finally:
                IMPORT_TARGET.reset(token)
        except (Exception, Found) as error:  # whatever the user's module raises
            why = "it runs a study" if isinstance(error, Found) else worded(error, str)
            raise UsageError(
                f"the code of study {self.trained['study']}, {self.name} of {script}, cannot be"
                f" imported here: {why}: put the file back; have a script run its study under"
                ' `if __name__ == "__main__":`; or give the class: nas.best_model(study, code=...),'
                " penstock best --model FOLDER --code FILE.py:NAME",
                "code",
            ) from error


def best_model(
    study: Study, trial: int | None = None, *, code: Any = None, store: str | None = None
) -> nn.Module:
    """Return the trained model of a study's best trial, or of trial number ``trial``.

    The model is on the CPU, in evaluation mode. It is made as the trial made it: from its
    parameters and, if mutators changed it, from their log. If the code has an ``encoder()``, the
    model is the part after the encoder. ``code`` is the study's class; by default it is imported
    from its original place. ``store`` is the URL of the folder that has the checkpoints; by default
    it is taken from the ledger. Both must be given for an imported study. Raises UsageError for a
    study without a single best trial, for code that is no ``TorchTrainable`` or cannot be imported,
    for a trial whose state is not kept, and if the code now makes another model; BackendError if
    the state cannot be read.
    """
    from .rebuilt import rebuilt

    study._handle.check_submitted()
    reader = study._handle.reader()
    row, code_is_named = reader.study(study.id), code is not None
    model = trained_model(reader, row, trial, code_is_named=code_is_named, store=store)
    return rebuilt(code or model.code(), model.trained, model.weights())


def trained_model(
    reader: Reader,
    study: StudyRow,
    number: int | None = None,
    *,
    code_is_named: bool = False,
    store: str | None = None,
) -> TrainedModel:
    """Return the parts of the model of a study's best trial, or of trial ``number``.

    ``code_is_named`` is True if the user has given the code, so that the study's own code is not
    used. Raises as ``best_model`` does.
    """
    spec = spec_from_json(study.spec_json)
    if spec.contract != "torch":
        raise UsageError(
            f"the code of study {study.name} is no TorchTrainable, so Penstock cannot make its"
            " model: make it with the code of the study",
            "study",
        )
    trials = reader.trials(study.id)
    trial = _trial(study, trials, number)
    state = _state(reader, study, trial, _kept(study, spec, trials))
    if (store is None or not code_is_named) and reader.imported(study.id) is not None:
        raise _unnamed(study, spec, state)
    derived = [event for _, event in reader.events(trial.id) if isinstance(event, Derived)]
    keys = trial.origin_keys if trial.origin_keys is not None else replicate_of(spec, trial.number)
    module, _, name = spec.code.target.removeprefix(PREFIX).rpartition(":")
    trained = {
        "study": study.name,
        "trial": trial.number,
        "epoch": trial.epoch,
        "metrics": final_metrics(trial, reader.epochs(study.id)),
        "params": trial.params,
        "seed": spec.seed,
        "key_number": trial.number if keys is None else keys,
        "derivation": _derivation(derived[-1]) if derived else None,
    }
    module = Path(module).stem if module.endswith(".py") else module
    uri = state.uri if store is None else _in_store(store, state)
    return TrainedModel(module, spec.code.path, name, trained, uri, state.state_hash)


def _unnamed(study: StudyRow, spec: StudySpec, state: DurableRow) -> UsageError:
    folder = hide_password(state.uri.rpartition("/")[0].rpartition("/")[0])
    return UsageError(
        f"{study.name} was imported: its code and the place of its checkpoints are what its file"
        f" says, so nothing there is run or opened unless you name it. It says code"
        f" {spec.code.target} in {spec.code.path} and checkpoints in {folder}. If you trust both:"
        f" penstock best {study.id} --model FOLDER --code FILE.py:NAME --store URL, or"
        " nas.best_model(study, code=Class, store=URL)",
        "code",
    )


def _in_store(store: str, state: DurableRow) -> str:
    """Return the checkpoint's URL in ``store``. Only the file's name is taken from the ledger."""
    name = state.uri.rpartition("/")[2]
    if not _FILE.fullmatch(name):
        raise UsageError.refuse("the checkpoint's name", name, "SHA-256.pt, as Penstock names them")
    return f"{store.rstrip('/')}/{name[:2]}/{name}"


def _derivation(event: Derived) -> dict[str, Any]:
    return {"base": event.base, "log": json.loads(event.log), "digest": event.digest}


def _trial(study: StudyRow, trials: list[TrialRow], number: int | None) -> TrialRow:
    if number is not None:
        for trial in trials:
            if trial.number == number:
                return trial
        raise UsageError.refuse("trial", number, f"a number from 0 to {len(trials) - 1}")
    best = front_of(study, trials)
    if not best:
        raise UsageError(f"no trial of {study.name} has a value yet, of {len(trials)}", "study")
    if study.further and len(best) > 1:
        raise UsageError.refuse(
            "trial",
            None,
            f"one of {numbers_of(best)}: a study of {len(study.objectives)} objectives has no"
            " single best",
        )
    return best[0]


def _kept(study: StudyRow, spec: StudySpec, trials: list[TrialRow]) -> list[str]:
    """Return ids of trials whose last state is in the store at the study's end or soon after."""
    completed = [trial for trial in trials if trial.state == TrialState.COMPLETED]
    best = ranked(study, completed) if completed and not study.further else front_of(study, trials)
    return [trial.id for trial in best[: spec.keep_checkpoints]]


def _state(reader: Reader, study: StudyRow, trial: TrialRow, kept: list[str]) -> DurableRow:
    """Return the state after the trial's last epoch. Wait for a state that may still be written."""
    late = study.finished_at is None or time.time() - study.finished_at < RECENT
    until = time.monotonic() + (WAIT if late and trial.id in kept else 0.0)
    while True:
        for state in reader.durables(study.id):
            if (state.trial, state.epoch) == (trial.id, trial.epoch):
                return state
        if time.monotonic() >= until:
            break
        time.sleep(0.1)
    numbers = ", ".join(str(number_of(each)) for each in kept) or "none"
    raise UsageError(
        f"the store has no state of trial {trial.number} of {study.name} after its last epoch,"
        f" {trial.epoch}: it keeps the states of the best trials only ({numbers}). To keep more:"
        " create_study(limits=penstock.Limits(keep_checkpoints=...))",
        "trial",
    )
