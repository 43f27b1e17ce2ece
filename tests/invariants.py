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
        "app/test_code_by_value.py",
        "app/test_codec.py",
        "app/test_ledger.py",
        "app/test_migrations.py",
        "extensions/nas/test_space.py",
        "app/test_protocol.py",
        "app/test_queries.py",
        "app/test_reaper.py",
        "app/test_recorded_ledgers.py",
        "app/test_transport.py",
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
        "tasks/test_checkpoint.py",
        "extensions/pages/test_fuzzed.py",
        "extensions/prefixes/test_data_token.py",
        "extensions/prefixes/test_taken_over_ledger.py",
        "extensions/sharing/test_encoder.py",
        "tasks/test_epochs.py",
        "tasks/test_exact.py",
        "extensions/fusion/test_fused_operators.py",
        "extensions/fusion/test_fusion.py",
        "extensions/fusion/test_fusion_faults.py",
        "tasks/test_gang.py",
        "tasks/test_import_digest.py",
        "extensions/fusion/test_fused_groups.py",
        "tasks/test_meeting.py",
        "extensions/nas/test_nas.py",
        "extensions/nas/test_nas_capture.py",
        "extensions/nas/test_nas_mutators.py",
        "extensions/nas/test_nas_outline.py",
        "extensions/nas/test_nas_repair.py",
        "extensions/fusion/test_models_together.py",
        "tasks/test_portable.py",
        "extensions/fusion/test_recorded_steps.py",
        "tasks/test_ring.py",
        "extensions/lanes/test_round_robin.py",
        "tasks/test_seeding.py",
        "tasks/test_shards.py",
        "tasks/test_state.py",
        "tasks/test_state_copies.py",
        "tasks/test_steps.py",
        "extensions/sharing/test_streams.py",
        "extensions/nas/test_supernet.py",
        "tasks/test_tree.py",
        "tasks/test_width_window.py",
    }
)

WORDS = re.compile(r"_(bits?|doubled|exactly|fence\w*|lost|twice|wedged|wrong)(?=_|$)")


def is_invariant(file: str, test: str) -> bool:
    """Return True if a test, by its file below ``tests`` and its name, is never run again."""
    of_engine = file.startswith("extensions/") and "/test_scheduler" in file
    return file in FILES or file.startswith(ROOMS) or of_engine or WORDS.search(test) is not None
