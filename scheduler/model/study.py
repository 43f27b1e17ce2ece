"""What a study is: code, space, sampler, strategy, objective and budget, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

Scalar = str | int | float | bool | None
Params = tuple[tuple[str, Scalar], ...]
Metrics = tuple[tuple[str, float], ...]

#: ``torch``: a TorchTrainable. ``objective``: an Optuna objective(trial). ``epochs``: an epoch
#: function. ``ask``: the user trains by himself, and tells. ``empty``: an epoch that does nothing,
#: for measuring the control plane.
CONTRACTS = ("torch", "objective", "epochs", "ask", "empty")
#: ``bitwise``: the same (trial, epoch) has the same bits, so what is lost is replayed.
#: ``statistical``: it need not, so an epoch counts once its state is durable.
EXACTNESS = ("bitwise", "statistical")
#: What becomes of an epoch under another signature than the one before it (``numerics``).
ON_SIGNATURE_CHANGE = ("refuse", "record")

#: Whether system parameters are tuned: not at all; with exact knobs and what is known already; or
#: by probing, with all knobs that the study's exactness allows (``tuning``).
SYSTEM = ("off", "reuse", "tune")


@dataclass(frozen=True, slots=True)
class Code:
    """Training code by name: ``module:attr`` or ``/path/script.py:attr``, never by value.

    ``path`` is the folder put on ``sys.path``; ``digest`` the SHA-256 of the source file (hex).
    """

    target: str
    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """How long each configuration is trained: a name of ``strategies.base`` and its numbers.

    ``max_epochs`` None means: until the objective returns (``full`` only). ``min_epochs`` is the
    lowest rung, or the distance between two looks of an early-stopping rule or of ``pbt``;
    ``overlap`` is ``hyperband``'s, ``risk`` that of stopping the best trial by ``curve``. Of
    ``pbt`` are ``quantile``, the share of the population at either end, ``resample``, the
    probability that a parameter is drawn anew, and ``explore``, the parameters that are explored
    (None: all).
    """

    name: str = "full"
    max_epochs: int | None = None
    min_epochs: int = 1
    eta: int = 3
    overlap: bool = True
    risk: float = 0.05
    quantile: float = 0.25
    resample: float = 0.25
    explore: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A value that a study optimises: a metric's name, and ``minimize`` or ``maximize``."""

    metric: str
    direction: str

    @property
    def sign(self) -> float:
        """+1 where larger is better, -1 where smaller is: a score is ``sign * value``."""
        return 1.0 if self.direction == "maximize" else -1.0


@dataclass(frozen=True, slots=True)
class Condition:
    """Parameter ``name`` is there where ``parent``, a choice above it, has one of ``values``."""

    name: str
    parent: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """A result from ``source`` that samplers learn from: no trial of the study that holds it.

    ``values`` are (epoch, value) as far as known; ``value`` is that of the whole training, None
    where it was not trained to its end.
    """

    params: Params
    value: float | None
    values: tuple[tuple[int, float], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class StudySpec:
    """One tuning job as submitted. Immutable: every later change is an event of its own.

    ``space`` maps names to Optuna distribution JSON; None means define-by-run (``objective``).
    ``sampler`` is a name of ``app.optuna_bridge.samplers``, ``sampler_options`` its keyword
    arguments as JSON. ``epoch_timeout`` in seconds, None for none. ``retries`` is how often a trial
    whose code failed is tried again (crashes of its process have their own limit, see
    ``scheduler.model.retry``). ``max_width`` is on how many devices one trial may run, ``shards``
    into how many its batches are cut (None: see ``shards_of``), ``batch_size`` the code's own,
    where no hyperparameter says it. ``exactness`` is one of ``EXACTNESS``, ``on_signature_change``
    of ``ON_SIGNATURE_CHANGE``. ``keep_checkpoints``: of so many of its best trials the last state
    is kept when it is over. ``further`` are its objectives besides ``metric``; ``constraints`` the
    metrics that must not be above a bound in a trial that counts; ``conditions`` say which
    parameters are not always there. ``observations`` were there before it (warm start). ``system``
    is one of ``SYSTEM``, ``knobs`` which system parameters may be turned (None: the usual ones),
    ``energy_weight`` (0 to 1) is the part of joules, and not of time, in what they are chosen by,
    and ``probing`` by which strategy they are tried (``profiling.knobs.racing.PROBING``).
    ``memory_limit``: bytes that the trainer of a trial may take, None for all there are. ``weight``
    (above 0) and ``priority`` (the higher goes first) are how it shares devices with other studies
    (``sharing``).
    """

    id: str
    name: str
    contract: str
    code: Code
    metric: str
    direction: str
    n_trials: int
    space: tuple[tuple[str, str], ...] | None
    sampler: str = "random"
    sampler_options: str = "{}"
    strategy: StrategySpec = StrategySpec()
    seed: int = 0
    epoch_timeout: float | None = None
    retries: int = 0
    max_segment: int = 64
    shards: int | None = None
    max_width: int = 1
    batch_size: int = 64
    exactness: str = "bitwise"
    on_signature_change: str = "refuse"
    keep_checkpoints: int = 1
    observations: tuple[Observation, ...] = ()
    further: tuple[Objective, ...] = ()
    constraints: tuple[tuple[str, float], ...] = ()
    conditions: tuple[Condition, ...] = ()
    system: str = "off"
    knobs: tuple[str, ...] | None = None
    energy_weight: float = 0.0
    probing: str = "race"
    memory_limit: int | None = None
    weight: float = 1.0
    priority: int = 0

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All of them, the first one first."""
        return (Objective(self.metric, self.direction), *self.further)

    @property
    def sign(self) -> float:
        """The first objective's."""
        return self.objectives[0].sign

    @property
    def also(self) -> tuple[str, ...]:
        """What an epoch must report besides ``metric``."""
        if not (self.further or self.constraints):  # asked at every epoch
            return ()
        names = [each.metric for each in self.further] + [name for name, _ in self.constraints]
        return tuple(name for name in dict.fromkeys(names) if name != self.metric)


def forks(spec: StudySpec) -> bool:
    """Whether its trials may begin with another one's state, which then has to be in the store."""
    return spec.strategy.name == "pbt" and spec.contract != "empty"  # which has no states


#: How a study that is over stands.
OVER = ("complete", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study as it stands: ``status`` is ``running``, ``paused`` or one of ``OVER``.

    ``message`` says why where the status alone does not (a refused node, all trials failed).
    """

    spec: StudySpec
    status: str
    created_at: float
    finished_at: float | None = None
    message: str = ""


#: The least examples of a shard that the rule leaves.
SHARD_EXAMPLES = 32


def shards_of(spec: StudySpec, params: Params) -> int:
    """Into how many shards the batches of a trial with ``params`` are cut, for all its life.

    What the study says, else min(widest allocation, batch size // 32), at least 1: wider never
    means smaller kernels than 32 examples give.
    """
    if spec.shards is not None:
        return spec.shards
    if spec.max_width == 1:
        return 1
    batch = dict(params).get("batch_size", spec.batch_size)
    examples = int(batch) if isinstance(batch, (int, float)) else 0
    return max(1, min(spec.max_width, examples // SHARD_EXAMPLES))


def trial_id(study: str, number: int) -> str:
    """The id of trial ``number`` of ``study``; it reads well in Flower and sorts by number."""
    return f"{study}-{number:04d}"


def number_of(trial: str) -> int:
    """The number in a trial's id."""
    return int(trial.rpartition("-")[2])
