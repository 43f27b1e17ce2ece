"""A study's specification as one frozen value: code, space, sampler, strategy, objectives."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...base.values import value_class

Scalar = str | int | float | bool | None
Params = tuple[tuple[str, Scalar], ...]
Metrics = tuple[tuple[str, float], ...]

#: Kinds of training code. ``torch``: a TorchTrainable. ``objective``: an Optuna objective(trial).
#: ``epochs``: an epoch function. ``ask``: users train trials by themselves and tell the results.
#: ``empty``: an epoch that does nothing, for measuring the scheduler.
CONTRACTS = ("torch", "objective", "epochs", "ask", "empty")
#: ``bitwise``: an epoch of a trial has the same bits whenever it is computed, so that lost epochs
#: can be computed again. ``statistical``: it may have other bits, so an epoch counts only once its
#: state is durable.
EXACTNESS = ("bitwise", "statistical")
#: Ways to treat an epoch whose signature differs from that of the epoch before: refuse it, or
#: accept it and record the change (``scheduler.engine.signatures``).
ON_SIGNATURE_CHANGE = ("refuse", "record")

#: Ways to tune system parameters (knobs). ``off``: not at all. ``reuse``: by earlier results only,
#: with knobs that do not change bits. ``tune``: by probing, with all knobs that the study's
#: exactness allows.
SYSTEM = ("off", "reuse", "tune")
#: The numbers in which a ``TorchTrainable`` computes. ``fp32``: float32. ``bf16``: bfloat16 where
#: autocast has it. ``auto``: bfloat16 if that is faster and trains as well.
PRECISION = ("fp32", "bf16", "auto")
#: The number in the keys of a trial's random numbers, next to the study's seed. ``trial``: its own
#: number. ``shared``: its replicate number, so that all configurations draw the same numbers.
SEEDING = ("trial", "shared")
#: Ways to treat trials of one structure. ``auto``: they may be trained in fused groups
#: (``Extension.fused_groups``). ``off``: they may not.
FUSE = ("auto", "off")
#: Actions when a study reaches a limit: end it, pause it, or end it once its best trial has reached
#: its target (``Limits``).
AT_LIMIT = ("stop", "pause", "finish_best")
#: The least deadline (seconds) that means a point in time since 1970. A smaller deadline counts
#: from the submission.
POINT_IN_TIME = 1e9


@dataclass(frozen=True, slots=True)
class Code:
    """Training code, sent by name or by value.

    By name, ``target`` is ``module:attr`` or ``/path/script.py:attr``. By value (a pickle), it is
    ``pickle:<module>:<name>``. ``path`` is the folder put on ``sys.path``. ``digest`` is the
    SHA-256 (hex) of the source file, or of the pickle. In a study with a data token it is the
    digest of all modules that the code imports (``tasks.contracts.import_digest``).
    """

    target: str
    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class SuperNet:
    """A trained super-net, from which trials take their weights instead of being trained."""

    #: The trial that trained the super-net, in words.
    name: str
    #: The address of its durable state.
    uri: str
    #: The hash of that state.
    state_hash: str
    #: Number of batches of training data over which a trial measures its running statistics again.
    batches: int


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """The strategy that decides how long each configuration is trained: its name and options."""

    #: A name that ``scheduler.strategies.registry`` knows.
    name: str = "full"
    #: The most epochs of a trial. None: it trains until its objective returns (``full`` only).
    max_epochs: int | None = None
    #: The lowest rung; for early-stopping rules and ``pbt``, the epochs between two comparisons.
    min_epochs: int = 1
    #: One in ``eta`` trials of a rung is promoted.
    eta: int = 3
    #: ``asha`` only: True if a trial may be promoted before ``eta`` trials have reached its rung
    #: (``scheduler.strategies.asha``). False for studies that were stored without this field.
    ahead: bool = False
    #: ``hyperband`` only: True if brackets run at the same time.
    overlap: bool = True
    #: ``hyperband`` only: True if a round with too few trials spreads them over its brackets. If
    #: False, its first brackets take them all, as in studies that were stored without this field.
    proportional: bool = False
    #: ``curve`` only: the risk of stopping the best trial, from 0 to 1.
    risk: float = 0.05
    #: ``pbt`` only: the part of the population, from 0 to 1, that counts as its best, and as its
    #: worst.
    quantile: float = 0.25
    #: ``pbt`` only: the probability that a parameter is sampled again.
    resample: float = 0.25
    #: ``pbt`` only: the parameters that change when a configuration is explored; None for all.
    explore: tuple[str, ...] | None = None
    #: ``full`` with one epoch only: the super-net from which trials take their weights, so that
    #: their epoch is an evaluation. None: trials are trained.
    supernet: SuperNet | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A value that a study optimises: the name of a metric, and ``minimize`` or ``maximize``."""

    metric: str
    direction: str

    @property
    def sign(self) -> float:
        """+1 if larger values are better, -1 if smaller are; a score is ``sign * value``."""
        return 1.0 if self.direction == "maximize" else -1.0


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: parameter ``name`` exists only if parameter ``parent`` has one of ``values``.

    ``parent`` is categorical.
    """

    name: str
    parent: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """A result from elsewhere that samplers learn from. It is not a trial of the study.

    ``values`` are the known (epoch, value) pairs. ``value`` is the result of the whole training, or
    None if the training was not finished. ``source`` names the origin of the result.
    """

    params: Params
    value: float | None
    values: tuple[tuple[int, float], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits of a study since its submission, for its samplers, for readers and its script."""

    #: The names of the fields of ``StudySpec``, and of the strategy, that were edited.
    fields: tuple[str, ...] = ()
    #: The names of the parameters that were edited or added.
    parameters: tuple[str, ...] = ()
    #: The values of added parameters that trials from before the edit are assumed to have.
    assumed: Params = ()
    #: The earlier distributions (JSON) of edited parameters, by name, oldest first.
    past: tuple[tuple[str, tuple[str, ...]], ...] = ()


#: Least number of trials (``StudySpec.n_trials``) that means a study runs until it is stopped.
ENDLESS = 10**9


@dataclass(frozen=True, slots=True)
class StudySpec:
    """One tuning job as submitted. It is immutable: a later change is an event."""

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
    #: Number of trials that it is to have; with ``ENDLESS`` or more, it runs until it is stopped.
    n_trials: int
    #: Optuna distributions (JSON) by name; None for a define-by-run ``objective``.
    space: tuple[tuple[str, str], ...] | None
    #: A name that ``app.server.optuna_bridge.samplers`` knows.
    sampler: str = "random"
    #: The sampler's keyword arguments (JSON).
    sampler_options: str = "{}"
    #: The strategy, which decides how long each configuration is trained.
    strategy: StrategySpec = StrategySpec()
    #: The seed of all random numbers in the study.
    seed: int = 0
    #: One of ``SEEDING``.
    seeding: str = "trial"
    #: Number of trials of each configuration (``scheduler.state.configurations``). It may be more
    #: than 1 only with seeding ``shared``.
    replicates: int = 1
    #: The user's name for the data. Studies with the same token, code and seed may take over each
    #: other's epochs, which have the same bits. None: the study takes over no epochs.
    data_token: str | None = None
    #: One of ``FUSE``. Trials in studies of older versions were never fused.
    fuse: str = "off"
    #: Seconds that an epoch may take; None for no limit.
    epoch_timeout: float | None = None
    #: Number of times that a trial whose code failed is tried again. Crashes of its process have
    #: their own limit (``scheduler.model.retry``).
    retries: int = 0
    #: The most epochs of a segment.
    max_segment: int = 64
    #: Number of shards that each batch is cut into; None for the number that ``shards_of`` gives.
    shards: int | None = None
    #: The most devices that one trial may run on.
    max_width: int = 1
    #: The code's own batch size, used if no hyperparameter ``batch_size`` sets it.
    batch_size: int = 64
    #: One of ``EXACTNESS``.
    exactness: str = "bitwise"
    #: One of ``ON_SIGNATURE_CHANGE``.
    on_signature_change: str = "refuse"
    #: Number of best trials whose last states are kept after the study has ended.
    keep_checkpoints: int = 1
    #: Results from before the study, for its sampler to learn from (warm start).
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
    #: The weight of energy against time, from 0 to 1, when system configurations are compared.
    energy_weight: float = 0.0
    #: The search for the best system configuration: ``race``, ``bandit``, ``bayesian`` or ``grid``.
    probing: str = "race"
    #: One of ``PRECISION``.
    precision: str = "fp32"
    #: True if all trials have one system configuration, except for knobs that do not change bits.
    #: It is chosen before any epoch counts (``StudyState.system``). If False, each trial may have
    #: its own, as in ledgers of older versions.
    system_fixed: bool = False
    #: Bytes of memory that the trainer of a trial may use; None for all the memory there is.
    memory_limit: int | None = None
    #: The study's weight in sharing devices with other studies, above 0
    #: (``scheduler.resources.fair_share``).
    weight: float = 1.0
    #: The study's priority in sharing devices; the highest goes first.
    priority: int = 0
    #: ``sys.argv`` of the script that submitted the study; empty if that is not known.
    argv: tuple[str, ...] = ()
    #: The working directory of that script; empty for the trainer's own directory.
    cwd: str = ""
    #: The sampler and the pruner (a pickled pair) if ``sampler`` is ``optuna`` or ``own``.
    tools: Code | None = None

    #: Number of first trials after which the study fails if all of them ended with the same
    #: exception in the same line of the user's code (``early_failure``). With 0 the study continues
    #: in spite of failures, as studies of older versions do, and studies whose user expects
    #: exceptions (``catch``).
    fail_early: int = 0
    #: True if trials that failed alike end the study only if no parameter tells them from trials
    #: that may pass (``early_failure``). If False, they end it at once, as in ledgers of older
    #: versions.
    evidence: bool = False
    #: The environment that its trainers run in; empty for that of the worker.
    environment: str = ""
    #: The most device-hours of the study; None for no limit.
    device_hours: float | None = None
    #: The most kilowatt-hours; None for no limit.
    kwh: float | None = None
    #: The most money, by the prices of devices (``PricesChosen``); None for no limit.
    money: float | None = None
    #: Seconds from the submission by which the study should have ended, or a point in time
    #: (``POINT_IN_TIME``); None for no limit.
    deadline: float | None = None
    #: One of ``AT_LIMIT``.
    at_limit: str = "stop"
    #: Its edits since it was submitted; None if there were none.
    edits: Edits | None = None
    #: The addresses that are notified about the study, or ``$NAME`` of environment variables that
    #: hold addresses. Not in the repr, as they hold secrets.
    notify: tuple[str, ...] = field(default=(), repr=False)
    #: The Celery task that is sent when the study ends, as JSON (``extensions.celery_apps``); empty
    #: for none. Not in the repr, as its arguments may hold secrets.
    on_end: str = field(default="", repr=False)
    #: The same for the task that is sent when the study fails.
    on_error: str = field(default="", repr=False)

    @property
    def limited(self) -> bool:
        """True if it has a limit of device time, energy, money or time."""
        limits = (self.device_hours, self.kwh, self.money, self.deadline)
        return limits != (None, None, None, None)

    @property
    def replays(self) -> bool:
        """True if a state that is not kept can be computed again with the same bits."""
        return self.contract in ("torch", "empty") and self.exactness == "bitwise"

    @property
    def local(self) -> bool:
        """True if sampler and pruner are Optuna's objects and run in the objective's process.

        Such a study behaves like a study of Optuna: its users may add trials and attributes.
        """
        return self.sampler == "optuna"

    @property
    def hosted(self) -> bool:
        """True if the sampler is an object of the user's that runs in a separate process."""
        return self.sampler == "own"

    @property
    def codes(self) -> tuple[Code, ...]:
        """All user code that the study needs."""
        return (self.code,) if self.tools is None else (self.code, self.tools)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives, beginning with that of ``metric``."""
        return (Objective(self.metric, self.direction), *self.further)

    @property
    def sign(self) -> float:
        """The sign of the first objective."""
        return self.objectives[0].sign

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics that an epoch must report in addition to ``metric``."""
        if not (self.further or self.constraints):  # fast, as this is called for every epoch
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
    return spec.strategy.name == "pbt" and spec.contract != "empty"  # an empty epoch has no state


#: The name under which the engine remembers a deleted study. No study has this name.
DELETED = "\n"
#: Seconds in an hour.
HOUR = 3600.0
#: Joules in a kilowatt-hour.
KWH = 3.6e6
#: The statuses of a study that has ended.
OVER = ("complete", "cancelled", "failed")


@value_class(frozen=True, slots=True)
class Spent:
    """Time, energy and money that a study has used until now, and the limits that it reached."""

    #: Device time (seconds), summed over devices. A trial that shares a lane is charged only for
    #: its turns, and a trial on one of several lanes in use only for its part of the device.
    device_seconds: float = 0.0
    #: The energy of its accepted epochs, as far as it was measured.
    joules: float = 0.0
    #: The cost of ``device_seconds``, by the prices at the time.
    money: float = 0.0
    #: The names in ``StudySpec`` of the limits that were reached. Each limit acts once.
    reached: tuple[str, ...] = ()


#: The ``Spent`` of a study that has just begun.
NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study and its status: ``running``, ``paused`` or one of ``OVER``.

    Times are those of the runner's clock (seconds). ``message`` tells the user facts that the
    status does not show, such as a refused node.
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
    """Return the batch size of a trial with ``params`` (examples); 0 if it is not a number."""
    batch = dict(params).get("batch_size", spec.batch_size)
    return batch if isinstance(batch, (int, float)) else 0


def shards_of(spec: StudySpec, params: Params) -> int:
    """Return the number of shards of each batch of a trial with ``params``.

    The number never changes during the trial. It is ``spec.shards`` if that is set, else
    min(``max_width``, batch size // 32), but at least 1. So a trial on several devices computes at
    least 32 examples at once on each.
    """
    if spec.shards is not None:
        return spec.shards
    if spec.max_width == 1:
        return 1
    examples = int(batch_of(spec, params))
    return max(1, min(spec.max_width, examples // SHARD_EXAMPLES))


def trial_id(study: str, number: int) -> str:
    """Return the id of trial ``number`` of ``study``. Up to 9999, ids sort as their numbers do."""
    return f"{study}-{number:04d}"


def replicate_of(spec: StudySpec, number: int) -> int | None:
    """Return trial ``number``'s replicate number, from 0; None unless the seeding is ``shared``.

    The keys of the trial's random numbers hold this number; if it is None, the trial's own number.
    """
    return number % spec.replicates if spec.seeding == "shared" else None


def study_of_trial(trial: str) -> str:
    """Return the id of the study in a trial's id."""
    return trial.rpartition("-")[0]


def number_of(trial: str) -> int:
    """Return the number in a trial's id."""
    return int(trial.rpartition("-")[2])
