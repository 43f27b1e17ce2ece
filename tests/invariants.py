"""The tests that are never run again: those that assert what must not go wrong even once.

Bits that differ, epochs that are lost or doubled, a wrong value, a study that is wedged: these are
defects however rarely they come, and a second run would hide them. The tests of the folders and
files named here carry the marker ``invariant``, and so does each test anywhere whose name says one
of the words. A single test elsewhere is marked by ``@pytest.mark.invariant``.
"""

from __future__ import annotations

import re

#: Below ``tests``. The core is pure and bytes are read by pure code: nothing there may vary. Nor in
#: ``extensions/NAME/test_scheduler*.py``, the tests of an extension's end in the engine.
ROOMS = ("fuzz/", "scheduler/")

FILES = frozenset(
    {
        "app/server/runner/test_code_by_value.py",
        "app/ledger/test_codec.py",
        "app/ledger/test_ledger.py",
        "app/ledger/test_migrations.py",
        "extensions/nas/test_space.py",
        "app/broker/test_protocol.py",
        "app/ledger/test_queries.py",
        "app/server/runner/test_reaper.py",
        "app/ledger/test_recorded_ledgers.py",
        "app/broker/test_transport.py",
        "benchmarks/relish/test_relish.py",
        "integration/test_best_model.py",
        "integration/test_celery_kills.py",
        "integration/test_celery_tasks.py",
        "integration/test_chaos.py",
        "integration/test_devices.py",
        "integration/test_exact.py",
        "integration/test_exactness.py",
        "integration/test_forged.py",
        "integration/test_fused.py",
        "integration/test_hostile.py",
        "integration/test_read_once.py",
        "integration/test_restore.py",
        "integration/test_sampler_faults.py",
        "integration/test_seeding.py",
        "integration/test_sentinels.py",
        "integration/test_steps.py",
        "integration/test_supernet.py",
        "integration/test_upgrade.py",
        "integration/test_width_windows.py",
        "tasks/checkpoints/test_checkpoint.py",
        "extensions/pages/test_fuzzed.py",
        "extensions/prefixes/test_data_token.py",
        "extensions/prefixes/test_taken_over_ledger.py",
        "extensions/sharing/test_encoder.py",
        "tasks/contracts/test_epochs.py",
        "tasks/training/test_exact.py",
        "extensions/fusion/test_fused_operators.py",
        "extensions/fusion/test_fusion.py",
        "extensions/fusion/test_fusion_faults.py",
        "tasks/gangs/test_gang.py",
        "tasks/contracts/test_import_digest.py",
        "extensions/fusion/test_fused_groups.py",
        "tasks/gangs/test_meeting.py",
        "extensions/nas/test_nas.py",
        "extensions/nas/test_nas_capture.py",
        "extensions/nas/test_nas_mutators.py",
        "extensions/nas/test_nas_outline.py",
        "extensions/nas/test_nas_repair.py",
        "extensions/fusion/test_models_together.py",
        "tasks/checkpoints/test_portable.py",
        "extensions/fusion/test_recorded_steps.py",
        "tasks/gangs/test_ring.py",
        "extensions/lanes/test_round_robin.py",
        "tasks/training/test_seeding.py",
        "tasks/gangs/test_shards.py",
        "tasks/checkpoints/test_state.py",
        "tasks/trainer/test_state_copies.py",
        "tasks/training/test_steps.py",
        "extensions/sharing/test_streams.py",
        "extensions/nas/test_supernet.py",
        "tasks/gangs/test_tree.py",
        "tasks/gangs/test_width_window.py",
    }
)

WORDS = re.compile(r"_(bits?|doubled|exactly|fence\w*|lost|twice|wedged|wrong)(?=_|$)")


def is_invariant(file: str, test: str) -> bool:
    """Return True if a test, by its file below ``tests`` and its name, is never run again."""
    of_engine = file.startswith("extensions/") and "/test_scheduler" in file
    return file in FILES or file.startswith(ROOMS) or of_engine or WORDS.search(test) is not None
