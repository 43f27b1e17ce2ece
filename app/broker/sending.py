"""Turn a dispatch into one broker command: the fence, and a Celery message for each gang member.

The messages are built here. The script that sets the fence also pushes the messages on their
queues. So a dispatch is one command of a pipeline, and Celery's own producer is not needed.
"""

from __future__ import annotations

import logging

from ...scheduler.model.decisions import Dispatch
from ...scheduler.model.study import Code, Scalar, StudySpec, replicate_of
from ...wire.messages import (
    CodeRef,
    ParentRef,
    SegmentTask,
    dumps,
    seal,
)
from . import protocol
from .installation import checkpoints
from .message import message

log = logging.getLogger(__name__)


def command_of(
    dispatch: Dispatch, spec: StudySpec, *, key: bytes, store: str, lease_ms: int
) -> protocol.Command:
    """Return the command that sends a segment, or reports a failure if no task can be made of it.

    The failure is one of the segment's trial, so that no study can end the scheduler.
    """
    try:
        return _dispatched(dispatch, spec, key, store, lease_ms)
    except ValueError as error:  # from pydantic, or for text that cannot be encoded
        log.exception("no task can be made of %s", dispatch.segment)
        body = {
            "kind": "failed",
            "trial": dispatch.segment.trial,
            "fence": dispatch.segment.fence,
            "cause": dispatch.id,
            "failure": "code",
            "message": f"its task cannot be sent to a worker: {str(error)[:500]}",
            "traceback": "",
        }
        return ("XADD", protocol.REPORTS, "*", *protocol.sealed(key, dumps(body)))


def _dispatched(
    dispatch: Dispatch, spec: StudySpec, key: bytes, store: str, lease_ms: int
) -> protocol.Command:
    segment = dispatch.segment
    trial = segment.trial
    queues = tuple(protocol.queue_name(m.device, m.slot) for m in segment.members)
    replicate = dispatch.keys
    if replicate is None:
        replicate = replicate_of(spec, dispatch.number)
    texts = []
    for rank, queue in enumerate(queues):
        task = SegmentTask(
            id=dispatch.id,
            study=dispatch.study,
            trial=trial,
            number=dispatch.number,
            replicate=replicate,
            contract=spec.contract,
            code=_reference(spec.code),
            argv=spec.argv,
            cwd=spec.cwd,
            params=dict(dispatch.params),
            define_by_run=spec.space is None,
            study_name=spec.name,
            directions=(spec.direction, *(each.direction for each in spec.further)),
            max_epochs=spec.strategy.max_epochs,
            tools=_reference(spec.tools) if spec.local and spec.tools else None,
            suggestions=_suggestions(dispatch) if dispatch.suggestions else (),
            metric=spec.metric,
            also=spec.also,
            bounds=spec.constraints,
            seed=spec.seed,
            first=segment.first,
            n=segment.n,
            until=dispatch.until,
            final=dispatch.final,
            shards=dispatch.shards,
            fence=segment.fence,
            rank=rank,
            queues=queues,
            parents=tuple(
                ParentRef(epoch=p.epoch, uri=p.uri, state_hash=p.state_hash)
                for p in dispatch.parents
            ),
            expect=dispatch.expect,
            holder=dispatch.holder,
            exactness=spec.exactness,
            signature=dispatch.signature,
            on_signature_change=spec.on_signature_change,
            store=checkpoints(store, key) if store else "",
            mtbf=dispatch.mtbf,
            origin=dispatch.origin,
            durable=dispatch.durable,
            system=dispatch.system,
            widths=segment.widths,
            width_epochs=dispatch.width_epochs,
            memory_limit=spec.memory_limit,
            environment=spec.environment,
            epoch_timeout=spec.epoch_timeout,
            lease_ms=lease_ms,
            copies=dispatch.copies,
            ext=dict(dispatch.ext) if rank == 0 else {},
        )
        text = task.model_dump_json(exclude_defaults=True)
        texts.append(message(task, text, seal(key, text), queue))
    leases = [protocol.lease_key(trial, rank) for rank in range(len(queues))]
    keys = (protocol.attempt_key(trial), *leases, *queues)
    return protocol.DISPATCH.command(keys, (segment.fence, *texts))


def _suggestions(dispatch: Dispatch) -> tuple[tuple[str, Scalar, str, float], ...]:
    return tuple((d.name, d.value, d.distribution, d.internal) for d in dispatch.suggestions)


def _reference(code: Code) -> CodeRef:
    return CodeRef(target=code.target, path=code.path, digest=code.digest)
