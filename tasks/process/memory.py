"""The memory that a trainer has used, which packing reads, and the limit on it."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...base.errors import TrialFailed
from .failure import failure_of

#: Bytes that a process takes of a GPU in addition to its tensors: context and libraries. PyTorch's
#: allocator does not see them. They were 827 MiB on an H200 (CUDA 13.0), after an MLP and a
#: convolutional net had been trained; smaller GPUs are said to take 300 to 500 MiB.
CUDA_CONTEXT = 1024 * 2**20
#: File that is read with every epoch by a single system call, since a file object would double the
#: time; and a number of bytes that the file does not reach.
_STATUS, _MOST = "/proc/self/status", 1 << 14
_ROLLUP, _REFERENCES = Path("/proc/self/smaps_rollup"), "/proc/self/clear_refs"
#: Content that, written to ``_REFERENCES``, sets the peak of the resident set to its present size
#: (Linux, proc_pid_clear_refs(5)).
_RESET_PEAK = b"5"
#: Seconds after which the shared part is read again. It takes 5 ms.
SHARED_AGE = 10.0


class PeakMemory:
    """The peak memory of this process on its device since ``begin``."""

    def __init__(self) -> None:
        #: The bytes of the process at the last ``begin``; 0 if it uses a GPU.
        self.base = 0
        self._shared = 0
        self._read_at: float | None = None

    def begin(self) -> None:
        """Begin a new peak: memory that was freed before does not count."""
        cuda = _cuda()
        if cuda is not None:
            cuda.reset_peak_memory_stats()
            self.base = 0
            return
        now = time.monotonic()
        if self._read_at is None or now - self._read_at > SHARED_AGE:
            self._shared, self._read_at = shared_memory(), now
        try:
            references = os.open(_REFERENCES, os.O_WRONLY)
            try:
                os.write(references, _RESET_PEAK)
            finally:
                os.close(references)
        except OSError:
            pass  # some containers forbid it: then the peak is that since the process began
        self.base = self.bytes()

    def bytes(self) -> int:
        """Return the peak bytes since ``begin``. They may be summed over processes.

        On a GPU they are the memory that the allocator has taken, and the context. On a CPU they
        are the resident set without other processes' parts of shared pages (PSS).
        """
        cuda = _cuda()
        if cuda is not None:
            return int(cuda.max_memory_reserved()) + CUDA_CONTEXT
        try:
            # Not getrusage: in a child it starts with what the parent had when the child was
            # started.
            status = os.open(_STATUS, os.O_RDONLY)
            try:
                text = os.read(status, _MOST)
            finally:
                os.close(status)
            most = 1024 * int(text.partition(b"VmHWM:")[2].split(None, 1)[0])
        except (OSError, IndexError):
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            most = most if sys.platform == "darwin" else 1024 * most
        # The shared part was read earlier: a process that has freed much since then may have less.
        return max(0, most - self._shared)


def shared_memory() -> int:
    """Return RSS - PSS, the bytes of the resident set that count for others; 0 if not known."""
    try:
        sizes = {
            name: int(rest.split()[0])
            for name, _, rest in (line.partition(":") for line in _ROLLUP.read_text().splitlines())
            if name in ("Rss", "Pss")
        }
        return 1024 * (sizes["Rss"] - sizes["Pss"])
    except (OSError, KeyError, ValueError, IndexError):
        return 0


def _cuda() -> Any:
    """Return ``torch.cuda`` if this process uses a GPU, else None."""
    # Another thread may be importing torch right now; the module is then only partly there.
    cuda = sys.modules.get("torch.cuda")
    return cuda if cuda is not None and getattr(cuda, "is_initialized", bool)() else None


@contextmanager
def bounded(limit: int | None) -> Iterator[None]:
    """Limit this process's data, including that of its libraries, to ``limit`` bytes.

    The limit is ``RLIMIT_DATA``: heap and private mappings of this process on its host. It counts
    neither mapped files nor GPU memory. Raises ``TrialFailed`` (memory), which names the limit, if
    more was requested.
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
