"""How much memory a trainer has needed, by which devices are packed, and how much it may have."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...profiling.base.errors import TrialFailed
from .failure import failure_of

#: What a process takes of a GPU beside its tensors: context and libraries (bytes). PyTorch's
#: allocator does not see it; 300 to 500 MiB are told of current CUDA releases, which load lazily.
CUDA_CONTEXT = 512 * 2**20
#: Read with every epoch, therefore at once; it has fewer bytes than this.
_STATUS, _MOST = Path("/proc/self/status"), 1 << 14


def peak_memory() -> int:
    """The most bytes that this process has had of its device: of the GPU if it uses one.

    Of a CPU it is the resident set, shared libraries included, so a sum over processes is more than
    they take together.
    """
    # Another thread may be importing torch just now: then the module is there, but not all of it.
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        return int(cuda.max_memory_reserved()) + CUDA_CONTEXT
    try:
        # Not getrusage: a child begins there with what its parent had when it was started.
        with _STATUS.open("rb", buffering=0) as status:
            text = status.read(_MOST)
        return 1024 * int(text.partition(b"VmHWM:")[2].split(None, 1)[0])
    except (OSError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most


@contextmanager
def bounded(limit: int | None) -> Iterator[None]:
    """Let this process have ``limit`` bytes of data at most, its libraries' included.

    By ``RLIMIT_DATA``: heap and private mappings of this process on its host, no file that it has
    mapped, and not what a GPU has. Raises ``TrialFailed`` (memory), which names the limit, where
    more was asked for.
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
