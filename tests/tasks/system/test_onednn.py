"""oneDNN's instruction set is named as oneDNN itself finds it, under the limit that it reads."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from penstock.profiling.devices.signature import agree
from penstock.tasks.system import onednn
from penstock.tasks.system.onednn import instruction_set

LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
AVX2 = "fpu sse4_1 avx avx2"
CORE = f"{AVX2} avx512f avx512bw avx512vl avx512dq"
BF16 = f"{CORE} avx512_vnni avx512_bf16"
FP16 = f"{BF16} avx_vnni avx512_fp16"
AMX = f"{FP16} amx_tile amx_int8 amx_bf16"
#: Words by which oneDNN tells its sets apart in its log, the first that is there.
WORDS = {
    "AVX512_CORE_AMX_FP16": "AMX with bfloat16, float16",
    "AVX512_CORE_AMX": "Intel AMX",
    "AVX512_CORE_FP16": "AVX 10.1",
    "AVX512_CORE_BF16": "AVX-512 with Intel DL Boost and bfloat16",
    "AVX512_CORE_VNNI": "AVX-512 with Intel DL Boost",
    "AVX512_CORE": "AVX-512",
    "AVX2_VNNI_2": "AVX2 with Intel DL Boost, float16",
    "AVX2_VNNI": "AVX2 with Intel DL Boost",
    "AVX2": "Intel AVX2",
    "AVX": "Intel AVX",
    "SSE41": "SSE4.1",
}


@pytest.fixture
def processor(monkeypatch):
    """Makes the processor have these flags; the environment sets no limit."""
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    instruction_set.cache_clear()
    yield lambda text: monkeypatch.setattr(onednn, "flags", lambda: frozenset(text.split()))
    instruction_set.cache_clear()


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (f"{AMX} amx_fp16", "AVX512_CORE_AMX_FP16"),
        (AMX, "AVX512_CORE_AMX"),
        (FP16, "AVX512_CORE_FP16"),
        (BF16, "AVX512_CORE_BF16"),
        (f"{BF16} avx_vnni", "AVX512_CORE_BF16"),
        (f"{CORE} avx512_vnni", "AVX512_CORE_VNNI"),
        (CORE, "AVX512_CORE"),
        (f"{AVX2} avx_vnni", "AVX2_VNNI"),
        (AVX2, "AVX2"),
        ("sse4_1", "SSE41"),
        ("fp asimd bf16", "ASIMD_BF16"),
        ("fp asimd", "ASIMD"),
        ("", "none"),
    ],
)
def test_it_is_the_highest_that_the_processor_has(processor, flags, name):
    processor(flags)
    assert instruction_set() == name


@pytest.mark.parametrize("variable", LIMITS)
@pytest.mark.parametrize(
    ("flags", "limit", "name"),
    [
        (AMX, "AVX2", "AVX2"),
        (AMX, "avx512_core", "AVX512_CORE"),
        (AMX, "AVX512_CORE_BF16", "AVX512_CORE_BF16"),
        (BF16, "AVX512_CORE_AMX", "AVX512_CORE_BF16"),
        (f"{AVX2} avx_vnni", "AVX512_CORE", "AVX2"),
        (f"{AVX2} avx_vnni", "AVX512_CORE_FP16", "AVX2_VNNI"),
        (AMX, "ALL", "AVX512_CORE_AMX"),
        (AMX, "unheard of", "AVX512_CORE_AMX"),
        (AMX, "", "AVX512_CORE_AMX"),
    ],
)
def test_the_limit_counts(processor, monkeypatch, variable, flags, limit, name):
    processor(flags)
    monkeypatch.setenv(variable, limit)
    assert instruction_set() == name


def test_without_onednn_there_is_none(processor, monkeypatch):
    processor(AMX)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert instruction_set() == "none"


PROGRAM = """
import hashlib, json, os, sys
import torch
from penstock.tasks.training.determinism import machine_signature
torch.set_num_threads(1)
signature = machine_signature(torch.device("cpu"))
os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"  # too late

def bits(bf16):
    torch.manual_seed(0)
    layer, images = torch.nn.Conv2d(16, 24, 3), torch.randn(8, 16, 15, 15)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        made = layer(images).float()
    made.square().sum().backward()
    of = [made.detach(), layer.weight.grad]
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in of)).hexdigest()

print(json.dumps({"signature": signature, "bits": [bits(False), bits(True)]}))
"""


def computed(limit):
    """oneDNN's word for its instruction set, the machine's signature, and the bits it computes."""
    variables = {name: value for name, value in os.environ.items() if name not in LIMITS}
    variables["ONEDNN_VERBOSE"] = "1"
    variables |= {"ONEDNN_MAX_CPU_ISA": limit} if limit else {}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True
    )
    *log, last = done.stdout.splitlines()
    said = next((line for line in log if "cpu,isa:" in line), "")
    name = next((name for name, words in WORDS.items() if words in said), None)
    return name, json.loads(last)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN")
def test_where_bits_differ_by_the_limit_signatures_do_and_name_what_onednn_names():
    by_limit = {limit: computed(limit) for limit in ("", "AVX512_CORE", "AVX2", "SSE41")}
    for name, found in by_limit.values():
        assert name is None or name in re.split("[.;]", found["signature"]), (
            "as oneDNN's log has it"
        )
    for _, one in by_limit.values():
        for _, other in by_limit.values():
            assert agree(one["signature"], other["signature"]) == (
                one["signature"] == other["signature"]
            )
            if one["signature"] == other["signature"]:
                assert one["bits"] == other["bits"]
            # ATen's part, which was all that 0.2 named, is the same under any limit.
            assert one["signature"].split(".")[1] == other["signature"].split(".")[1]
    used = {found["signature"] for _, found in by_limit.values()}
    results = {tuple(found["bits"]) for _, found in by_limit.values()}
    if "avx2" in onednn.flags():
        assert len(used) > 1
        assert len(results) > 1, "equal signatures of 0.2 had other bits"
