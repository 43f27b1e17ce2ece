"""A study's specification as one frozen value: code, space, sampler, strategy, objectives."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...base.values import value_class

Scalar = str | int | float | bool | None
Params = tuple[tuple[str, Scalar], ...]
Metrics = tuple[tuple[str, float], ...]

#: ``torch``: a TorchTrainable. ``objective``: an Optuna objective(trial). ``epochs``: an epoch
#: function. ``ask``: users train by themselves and tell results. ``empty``: an epoch that does
#: nothing, for measuring the control plane.
CONTRACTS = ("torch", "objective", "epochs", "ask", "empty")
#: ``bitwise``: the same (trial, epoch) has the same bits, so lost work is replayed.
#: ``statistical``: it need not have, so an epoch counts once its state is durable.
EXACTNESS = ("bitwise", "statistical")
#: Ways to treat an epoch whose signature differs from the one before it
#: (``scheduler.engine.signatures``).
ON_SIGNATURE_CHANGE = ("refuse", "record")

#: Ways to tune system parameters: not at all; with exact knobs and earlier results only; or by
#: probing, with all knobs that the study's exactness allows.
SYSTEM = ("off", "reuse", "tune")
#: The numbers in which a ``TorchTrainable`` computes: float32; bfloat16 where autocast has it; or
#: bfloat16 where that is faster and trains as well.
PRECISION = ("fp32", "bf16", "auto")
#: Contents of the keys of a trial's random numbers, in addition to the study's seed. ``trial``: its
#: number. ``shared``: its replicate number, so that all configurations draw the same numbers.
SEEDING = ("trial", "shared")
#: Ways to treat trials of one structure: ``auto``, they may be trained together
#: (``Extension.fused_groups``); ``off``, they may not.
FUSE = ("auto", "off")
#: Actions at a limit of the study (``Limits``).
AT_LIMIT = ("stop", "pause", "finish_best")
#: The least deadline (seconds) that is a point in time since 1970; a smaller one counts from the
#: submission.
POINT_IN_TIME = 1e9


@dataclass(frozen=True, slots=True)
class Code:
    """Training code: by name as ``module:attr`` or ``/path/script.py:attr``, else by value.

    By value it is ``pickle:<module>:<name>``. ``path`` is the folder put on ``sys.path``.
    ``digest`` is the SHA-256 (hex) of the source file, or of the pickle. In a study with a data
    token it is the digest of all modules that the code imports (``tasks.contracts.import_digest``).
    """

    target: str
    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class SuperNet:
    """A trained super-net, whose weights trials take over instead of being trained."""

    #: The trial that trained it, in words.
    name: str
    #: Its durable state: the address and the state hash.
    uri: str
    state_hash: str
    #: Number of batches of training data over which a trial measures its running statistics again.
    batches: int


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """The strategy that decides how long each configuration is trained: its name and options."""

    #: A name that ``scheduler.strategies.registry`` knows.
    name: str = "full"
    #: The most epochs of a trial. None: until the objective returns (``full`` only).
    max_epochs: int | None = None
    #: The lowest rung; for early-stopping rules and ``pbt``, the epochs between two comparisons.
    min_epochs: int = 1
    #: One trial of this many at a rung is promoted.
    eta: int = 3
    #: ``asha`` only: True if trials go ahead of a rung's others (``scheduler.strategies.asha``). In
    #: studies that were stored before there was a choice, they do not.
    ahead: bool = False
    #: ``hyperband`` only: True if brackets run at the same time.
    overlap: bool = True
    #: ``hyperband`` only: True if a round with too few trials spreads them over its brackets. In
    #: studies that were stored before there was a choice, its first brackets take them all.
    proportional: bool = False
    #: ``curve`` only: the risk of stopping the best trial, from 0 to 1.
    risk: float = 0.05
    #: ``pbt`` only: the share of the population at either end, from 0 to 1.
    quantile: float = 0.25
    #: ``pbt`` only: the probability that a parameter is sampled again.
    resample: float = 0.25
    #: ``pbt`` only: the parameters that are explored (None: all).
    explore: tuple[str, ...] | None = None
    #: ``full`` with one epoch only: trials are *candidates* of this super-net, whose epoch is an
    #: evaluation. None: they are trained.
    supernet: SuperNet | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A value that a study optimises: the name of a metric, and ``minimize`` or ``maximize``."""

    metric: str
    direction: str

    @property
    def sign(self) -> float:
        """+1 where larger is better, -1 where smaller is: a score is ``sign * value``."""
        return 1.0 if self.direction == "maximize" else -1.0


@dataclass(frozen=True, slots=True)
class Condition:
    """Parameter ``name`` exists only if categorical parameter ``parent`` has one of ``values``."""

    name: str
    parent: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """A result from ``source`` that samplers learn from. It is not a trial of the study.

    ``values`` are the known (epoch, value) pairs. ``value`` is the result of the whole training, or
    None if the training was not finished.
    """

    params: Params
    value: float | None
    values: tuple[tuple[int, float], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits of a study since its submission, kept for its samplers, readers and script."""

    #: The names of the fields of ``StudySpec``, and of the strategy, that were edited.
    fields: tuple[str, ...] = ()
    #: The names of the parameters that were edited or added.
    parameters: tuple[str, ...] = ()
    #: The values of added parameters that earlier trials are assumed to have had.
    assumed: Params = ()
    #: The earlier distributions (JSON) of edited parameters, by name, oldest first.
    past: tuple[tuple[str, tuple[str, ...]], ...] = ()


#: Number of trials at or above which a study is endless: it runs until it is stopped.
ENDLESS = 10**9


@dataclass(frozen=True, slots=True)
class StudySpec:
    """One tuning job as submitted. It is immutable: every later change is a separate event."""

    #: The study's id.
    id: str
    #: The study's name.
    name: str
    #: One of ``CONTRACTS``: the kind of code that trains.
    contract: str
    #: The training code.
    code: Code
    #: The metric of the first objective.
    metric: str
    #: ``minimize`` or ``maximize``, for ``metric``.
    direction: str
    #: Number of trials it is to have; with ``ENDLESS`` or more, it runs until it is stopped.
    n_trials: int
    #: Optuna distributions (JSON) by name; None for a define-by-run ``objective``.
    space: tuple[tuple[str, str], ...] | None
    #: A name that ``app.server.optuna_bridge.samplers`` knows.
    sampler: str = "random"
    #: The sampler's keyword arguments (JSON).
    sampler_options: str = "{}"
    #: The strategy, which decides how long each configuration is trained.
    strategy: StrategySpec = StrategySpec()
    #: The seed of everything random in the study.
    seed: int = 0
    #: One of ``SEEDING``.
    seeding: str = "trial"
    #: Number of trials of each configuration, with keys that all configurations have in common
    #: (``scheduler.state.configurations``); more than 1 with ``shared`` only.
    replicates: int = 1
    #: The user's name for the data. Studies with the same token, code and seed may take over each
    #: other's epochs, which have the same bits. None: they do not.
    data_token: str | None = None
    #: One of ``FUSE``. Studies of older versions were never fused.
    fuse: str = "off"
    #: Seconds that an epoch may take; None for no limit.
    epoch_timeout: float | None = None
    #: Number of times that a trial whose code failed is tried again. Crashes of its process have
    #: their own limit (``scheduler.model.retry``).
    retries: int = 0
    #: The most epochs of a segment.
    max_segment: int = 64
    #: Number of shards that batches are cut into; None: see ``shards_of``.
    shards: int | None = None
    #: The most devices that one trial may run on.
    max_width: int = 1
    #: The code's own batch size, used if no hyperparameter ``batch_size`` sets it.
    batch_size: int = 64
    #: One of ``EXACTNESS``.
    exactness: str = "bitwise"
    #: One of ``ON_SIGNATURE_CHANGE``.
    on_signature_change: str = "refuse"
    #: Number of the best trials whose last states are kept when the study has ended.
    keep_checkpoints: int = 1
    #: Results from before the study (warm start).
    observations: tuple[Observation, ...] = ()
    #: Objectives in addition to ``metric``.
    further: tuple[Objective, ...] = ()
    #: Metrics with upper bounds. A trial that exceeds one is infeasible.
    constraints: tuple[tuple[str, float], ...] = ()
    #: Conditions of parameters that exist only for certain values of others.
    conditions: tuple[Condition, ...] = ()
    #: One of ``SYSTEM``.
    system: str = "off"
    #: The system parameters that may be tuned; None for the usual ones.
    knobs: tuple[str, ...] | None = None
    #: Weight of joules, from 0 to 1, against time when system configurations are compared.
    energy_weight: float = 0.0
    #: Way of trying system configurations: ``race``, ``bandit``, ``bayesian`` or ``grid``.
    probing: str = "race"
    #: One of ``PRECISION``.
    precision: str = "fp32"
    #: True: all trials have one system configuration, except for exact knobs. It is chosen before
    #: any epoch counts (``StudyState.system``). False: each trial may have its own, as in ledgers
    #: of older versions.
    system_fixed: bool = False
    #: Bytes of memory that the trainer of a trial may use; None for all the memory there is.
    memory_limit: int | None = None
    #: The study's weight in sharing devices with others, above 0
    #: (``scheduler.resources.fair_share``).
    weight: float = 1.0
    #: The study's priority in sharing devices; the highest goes first.
    priority: int = 0
    #: ``sys.argv`` of the script that submitted it; empty where that is not known.
    argv: tuple[str, ...] = ()
    #: The working directory of that script; empty for the trainer's own directory.
    cwd: str = ""
    #: The sampler and the pruner (pickled, as a pair), with sampler ``optuna`` or ``own``.
    tools: Code | None = None

    #: Number of first trials after which the study fails if all of them ended with the same
    #: exception in the same line of the user's code (``early_failure``). With 0 the study never
    #: fails for this reason, as studies from before there was a limit, and studies whose user
    #: expects exceptions (``catch``).
    fail_early: int = 0
    #: True: trials that failed alike end the study only if no parameter tells them from trials that
    #: may pass (``early_failure``). False: they end it at once, as in ledgers of older versions.
    evidence: bool = False
    #: The environment that its trainers run in; empty: that of the worker.
    environment: str = ""
    #: The most device-hours of the study; None for no limit.
    device_hours: float | None = None
    #: The most kilowatt-hours; None for no limit.
    kwh: float | None = None
    #: The most money, by the prices of devices (``PricesChosen``); None for no limit.
    money: float | None = None
    #: Seconds from the submission until the study should have ended, or a point in time
    #: (``POINT_IN_TIME``); None for no limit.
    deadline: float | None = None
    #: One of ``AT_LIMIT``.
    at_limit: str = "stop"
    #: Its edits since it was submitted; None: there were none.
    edits: Edits | None = None
    #: The addresses that are notified about the study, or ``$NAME`` of variables that hold
    #: addresses. Not shown, as they hold secrets.
    notify: tuple[str, ...] = field(default=(), repr=False)
    #: The Celery task that is sent when the study ends, and the task that is sent when it fails,
    #: each as JSON (``extensions.celery_apps``); empty for none. Not shown, as arguments may hold
    #: secrets.
    on_end: str = field(default="", repr=False)
    on_error: str = field(default="", repr=False)

    @property
    def limited(self) -> bool:
        """True if it has a limit of device time, energy, money or time."""
        limits = (self.device_hours, self.kwh, self.money, self.deadline)
        return limits != (None, None, None, None)

    @property
    def replays(self) -> bool:
        """True if a state that is not kept can be computed again, to the same bits."""
        return self.contract in ("torch", "empty") and self.exactness == "bitwise"

    @property
    def local(self) -> bool:
        """True if sampler and pruner are Optuna's objects and run in the objective's process.

        Such a study behaves like one of Optuna's: its users may add trials and attributes.
        """
        return self.sampler == "optuna"

    @property
    def hosted(self) -> bool:
        """True if the scheduler samples with an object of the user's, in a process of its own."""
        return self.sampler == "own"

    @property
    def codes(self) -> tuple[Code, ...]:
        """All user code that the study needs."""
        return (self.code,) if self.tools is None else (self.code, self.tools)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives; that of ``metric`` is first."""
        return (Objective(self.metric, self.direction), *self.further)

    @property
    def sign(self) -> float:
        """The sign of the first objective."""
        return self.objectives[0].sign

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics that an epoch must report in addition to ``metric``."""
        if not (self.further or self.constraints):  # asked at every epoch
            return ()
        names = [each.metric for each in self.further] + [name for name, _ in self.constraints]
        return tuple(name for name in dict.fromkeys(names) if name != self.metric)


def deadline_of(spec: StudySpec, created_at: float) -> float | None:
    """Return when the study should have ended (the runner's clock); None without a deadline."""
    if spec.deadline is None or spec.deadline >= POINT_IN_TIME:
        return spec.deadline
    return created_at + spec.deadline


def forks(spec: StudySpec) -> bool:
    """Return True if the study's trials may start from another trial's state in the store."""
    return spec.strategy.name == "pbt" and spec.contract != "empty"  # which has no states


#: The name under which the engine remembers a deleted study. No study has this name.
DELETED = "\n"
#: Seconds of an hour.
HOUR = 3600.0
#: Joules of a kilowatt-hour.
KWH = 3.6e6
#: The statuses of a study that has ended.
OVER = ("complete", "cancelled", "failed")


@value_class(frozen=True, slots=True)
class Spent:
    """Time, energy and money that a study has used until now, and the limits that it reached."""

    #: Device time (seconds), summed over devices. It counts only turns, times the part of the
    #: device used.
    device_seconds: float = 0.0
    #: The energy of its accepted epochs, as far as it was measured.
    joules: float = 0.0
    #: The cost of ``device_seconds``, by the prices at the time.
    money: float = 0.0
    #: The limits that were reached, by their names in ``StudySpec``. Each acts once.
    reached: tuple[str, ...] = ()


#: The value of a study that has just begun.
NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study and its status: ``running``, ``paused`` or one of ``OVER``.

    ``message`` explains facts that the status does not show (a refused node, all trials failed).
    """

    spec: StudySpec
    status: str
    created_at: float
    finished_at: float | None = None
    message: str = ""
    spent: Spent = NOTHING_SPENT


#: The fewest examples per shard under the rule of ``shards_of``.
SHARD_EXAMPLES = 32


def batch_of(spec: StudySpec, params: Params) -> float:
    """Return the number of examples in a step of a trial with ``params``; 0 if not a number."""
    batch = dict(params).get("batch_size", spec.batch_size)
    return batch if isinstance(batch, (int, float)) else 0


def shards_of(spec: StudySpec, params: Params) -> int:
    """Return the number of shards of each batch of a trial with ``params``. It never changes.

    It is the study's number if that is set, else min(``max_width``, batch size // 32), but at least
    1. So no kernel of a wider trial works on fewer than 32 examples.
    """
    if spec.shards is not None:
        return spec.shards
    if spec.max_width == 1:
        return 1
    examples = int(batch_of(spec, params))
    return max(1, min(spec.max_width, examples // SHARD_EXAMPLES))


def trial_id(study: str, number: int) -> str:
    """Return the id of trial ``number`` of ``study``. It reads well in Flower, sorted by number."""
    return f"{study}-{number:04d}"


def replicate_of(spec: StudySpec, number: int) -> int | None:
    """Return trial ``number``'s replicate number, from 0; None if trials share no keys.

    The keys of the trial's random numbers hold the replicate number, or else the trial's number.
    """
    return number % spec.replicates if spec.seeding == "shared" else None


def study_of_trial(trial: str) -> str:
    """Return the id of the study in a trial's id."""
    return trial.rpartition("-")[0]


def number_of(trial: str) -> int:
    """Return the number in a trial's id."""
    return int(trial.rpartition("-")[2])
