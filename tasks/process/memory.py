"""How much memory a trainer has used, which packing reads, and how much it may use."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...profiling.base.errors import TrialFailed
from .failure import failure_of

#: What a process takes of a GPU besides its tensors: context and libraries (bytes). PyTorch's
#: allocator does not see it. Current CUDA releases, which load lazily, are said to take 300 to 500
#: MiB.
CUDA_CONTEXT = 512 * 2**20
#: Read in a single call, since it is read with every epoch. The file is shorter than this.
_STATUS, _MOST = Path("/proc/self/status"), 1 << 14


def peak_memory() -> int:
    """Peak memory (bytes) of this process on its device: of the GPU if it uses one.

    On a CPU this is the resident set, shared libraries included. A sum over processes is therefore
    more than they use together.
    """
    # Another thread may be importing torch right now; the module is then only partly there.
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        return int(cuda.max_memory_reserved()) + CUDA_CONTEXT
    try:
        # Not getrusage: in a child it starts with what the parent had when the child was started.
        with _STATUS.open("rb", buffering=0) as status:
            text = status.read(_MOST)
        return 1024 * int(text.partition(b"VmHWM:")[2].split(None, 1)[0])
    except (OSError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most


@contextmanager
def bounded(limit: int | None) -> Iterator[None]:
    """Limit this process's data, that of its libraries included, to ``limit`` bytes.

    The limit is ``RLIMIT_DATA``: heap and private mappings of this process on its host. It counts
    neither mapped files nor GPU memory. Raises ``TrialFailed`` (memory), which names the limit,
    where more was requested.
    """
    if limit is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, most))
    try:
        yield
    except Exception as error:
        failure = failure_of(error)
        if failure.kind != "memory":
            raise
        words = f"its memory limit is {limit / 2**30:.3g} GiB: {failure}"
        raise TrialFailed("memory", words, failure.traceback) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))
