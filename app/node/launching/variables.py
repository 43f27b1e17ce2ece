"""The environment variables of workers, and those that bind a trainer to a slot of a device."""

from __future__ import annotations

from collections.abc import Mapping

from ....profiling.devices.device import Device
from ....tasks.trainer.variables import PRELOAD
from ... import extensions
from ...broker import server
from ...host.locks import FD_VARIABLE
from ...host.settings import Settings

#: Settings for memory allocation in a trainer's glibc (other C libraries ignore them). With these
#: settings large blocks, too, come from the heap, which keeps freed memory for the next step and
#: uses huge pages. Without these settings a tensor of more than 32 MiB gets new pages each time:
#: 140 MB of state trained 30 % slower.
ALLOCATOR = ":".join(
    (
        "glibc.malloc.mmap_threshold=1099511627776",
        "glibc.malloc.trim_threshold=1099511627776",
        "glibc.malloc.hugetlb=1",
    )
)
#: The log level at which torch's profiler does not write two lines to a trainer's log at each use.
NO_LOG = "6"
#: Variables that limit the threads of libraries. Without these variables the libraries would use
#: all cores of the device, including those of its other slots. joblib and LightGBM read the first
#: variable, Polars reads the second, and libraries written in Rust (Hugging Face's tokenizers) read
#: the last.
THREAD_VARIABLES = ("LOKY_MAX_CPU_COUNT", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS")
#: The variable that tells a worker that its standard input is a pipe from its agent. The pipe is
#: closed when the agent ends.
AGENT_VARIABLE = "PENSTOCK_AGENT_PIPE"
#: The prefixes of variables that are meant for the worker process and not for its trainers.
_OF_WORKERS = ("CELERY_LOG_", "_MP_FORK_", FD_VARIABLE, PRELOAD)


def worker_environment(
    settings: Settings, device: Device, users: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of the worker that serves ``device``.

    ``users`` are the user's variables, to which the worker's are added.
    """
    threads = str(len(device.cores))
    return {
        **users,
        **settings.environment(),
        "PENSTOCK_BROKER": server.broker_url(settings),
        AGENT_VARIABLE: "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": device.uuid or "",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }


def environment(device: Device, users: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that bind a process to one slot of ``device``.

    ``users`` are the user's variables. The user's variables are kept, except for those on which the
    numeric signature (what a trial's bits depend on) depends: those of OpenMP, MKL and OpenBLAS,
    and those that select the visible GPUs. CatBoost reads no variable
    (``tasks.system.catboost_threads``).
    """
    threads = str(max(1, len(device.cores) // device.lanes))
    sharing = extensions.sharing_of(device)
    return {
        "GLIBC_TUNABLES": ALLOCATOR,
        **({} if sharing is None else sharing.variables()),
        "KINETO_LOG_LEVEL": NO_LOG,
        **dict.fromkeys(THREAD_VARIABLES, threads),
        **{name: value for name, value in users.items() if not name.startswith(_OF_WORKERS)},
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": device.uuid or "",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
    }
