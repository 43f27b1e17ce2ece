"""The environment variables that configure a trainer, or its fork server."""

from __future__ import annotations

#: The descriptor of the socket to the worker.
FD = "PENSTOCK_TRAINER_FD"
#: The descriptor of the socket where other trainers reach this trainer.
LISTEN = "PENSTOCK_TRAINER_LISTEN"
#: The trainer's identity, by which other trainers know it.
IDENTITY = "PENSTOCK_TRAINER_IDENTITY"
#: The study's environment in which the trainer runs; not set in the worker's own environment.
ENVIRONMENT = "PENSTOCK_TRAINER_ENVIRONMENT"
#: The folder of powercap zones; not set if the device's energy is not measured.
POWERCAP = "PENSTOCK_TRAINER_POWERCAP"
#: The extension that serves several runs at once, a colon, and the extension's argument; not set if
#: runs are served one after another.
SERVING = "PENSTOCK_TRAINER_SERVING"
#: The node's folder for trainers' data; not set if they keep nothing in files.
KEPT = "PENSTOCK_TRAINER_KEPT"
#: The extensions that hook into the trainer's segments, separated by commas.
EXTENSIONS = "PENSTOCK_TRAINER_EXTENSIONS"
#: The descriptor of the fork server's socket to the launcher process.
FORK_SERVER_FD = "PENSTOCK_FORK_SERVER_FD"
#: The contracts and modules that the fork server imports ahead of need, separated by commas. The
#: services pass it on to the launcher process.
PRELOAD = "PENSTOCK_FORK_SERVER_PRELOAD"
#: Variables set in a forked trainer. No library that the fork server imports has read them before.
SET_AFTER_FORK = frozenset(
    {
        IDENTITY,
        EXTENSIONS,
        KEPT,
        POWERCAP,
        SERVING,
        "CUDA_VISIBLE_DEVICES",
        "OPENBLAS_NUM_THREADS",
    }
)


def names_in(value: str) -> list[str]:
    """Return the names in the value of ``EXTENSIONS`` or ``PRELOAD``."""
    return [name for name in value.split(",") if name]
