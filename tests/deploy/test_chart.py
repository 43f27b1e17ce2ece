"""The Helm chart, as Helm renders it and Kubernetes' own schemas have it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import kubernetes_validate
import pytest
from deploy.deployed import DEPLOY, check_command, yaml_of
from machines.system import missing
from patience import PATIENCE
from penstock.app.host.settings import PREFIX, Settings
from penstock.app.node.agent import node_agent
from penstock.scheduler.policies.names import POLICIES

CHART = DEPLOY / "helm/penstock"
KUBERNETES = "1.33"
SHARED = {"broker": {"password": "abc123"}, "store": {"existingClaim": "shared"}}
VARIANTS = {
    "as it comes": SHARED,
    "gpus and autoscaling": {
        **SHARED,
        "workers": {"gpus": 1, "cores": 8, "tolerations": [{"operator": "Exists"}]},
        "keda": {"enabled": True},
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}}},
    },
    "everything elsewhere": {
        "broker": {"enabled": False, "existingSecret": "redis"},
        "ledger": {"existingSecret": "database"},
        "store": {"url": "s3://bucket/penstock", "credentialsSecret": "aws"},
        "workers": {
            "extraVolumes": [{"name": "code", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "code", "mountPath": "/code"}],
            "nodeSelector": {"pool": "gpu"},
        },
    },
}


def helm(values):
    """The process of Helm with these values: its output are manifests, or what is wrong."""
    if importlib.util.find_spec("helm_sdkpy") is None:
        missing("Helm's library is not here: pip install --ignore-requires-python helm-sdkpy")
    command = [sys.executable, "-m", "deploy.helm", CHART, json.dumps(values)]
    tests = Path(__file__).parents[1]
    return subprocess.run(
        command, cwd=tests, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


#: Kinds that each variant consists of. A missing kind would pass all checks of its fields.
ALWAYS = {"Service": 3, "StatefulSet": 3, "Secret": 1}
KINDS = {
    "as it comes": ALWAYS,
    "gpus and autoscaling": ALWAYS | {"ScaledObject": 1, "ServiceMonitor": 1},
    "everything elsewhere": {"Service": 2, "StatefulSet": 2},
}


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def manifests(variant):
    found = helm(VARIANTS[variant])
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def of(manifests, kind, name):
    [found] = [
        m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(f"-{name}")
    ]
    return found


def pods(manifests):
    return [m["spec"]["template"] for m in manifests if m["kind"] == "StatefulSet"]


def test_each_variant_has_what_it_needs_and_no_more(variant, manifests):
    assert Counter(manifest["kind"] for manifest in manifests) == KINDS[variant]


def test_kubernetes_schemas_know_every_field(manifests):
    for manifest in manifests:
        if "." not in manifest["apiVersion"]:  # else a kind that others bring
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_containers_start_commands_and_settings_that_there_are(manifests):
    ours = [c for pod in pods(manifests) for c in pod["spec"]["containers"] if "args" in c]
    assert [c["name"] for c in ours].count("worker") == 1 and len(ours) == 3
    for container in ours:
        check_command(container["args"])
        names = [e["name"] for e in container["env"] if e["name"].startswith(PREFIX)]
        assert {n.removeprefix(PREFIX).lower() for n in names} <= Settings.model_fields.keys()
        assert "PENSTOCK_BROKER" in names


def test_what_is_named_is_there(manifests):
    for manifest in manifests:
        if manifest["kind"] == "Service":
            wanted = manifest["spec"]["selector"].items()
            assert any(wanted <= pod["metadata"]["labels"].items() for pod in pods(manifests))
        if manifest["kind"] == "ServiceMonitor":
            wanted = manifest["spec"]["selector"]["matchLabels"].items()
            assert wanted <= of(manifests, "Service", "metrics")["metadata"]["labels"].items()
        if manifest["kind"] == "ScaledObject":
            name = manifest["spec"]["scaleTargetRef"]["name"]
            assert "replicas" not in of(manifests, "StatefulSet", "worker")["spec"]
            assert name == of(manifests, "StatefulSet", "worker")["metadata"]["name"]
        if manifest["kind"] == "StatefulSet":
            spec = manifest["spec"]
            services = {m["metadata"]["name"] for m in manifests if m["kind"] == "Service"}
            assert spec["serviceName"] in services
            pod = spec["template"]
            assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            volumes = {v["name"] for v in pod["spec"].get("volumes", [])}
            volumes |= {v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
            for container in pod["spec"]["containers"]:
                mounted = {m["name"] for m in container["volumeMounts"]}
                assert mounted <= volumes, container["name"]


def test_pods_are_nobody_and_workers_have_the_time_to_drain(manifests):
    for pod in pods(manifests):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
    worker = of(manifests, "StatefulSet", "worker")["spec"]["template"]["spec"]
    assert worker["terminationGracePeriodSeconds"] > node_agent.DRAIN_GRACE + 10


def test_a_password_is_in_the_secret_only(manifests):
    others = [m for m in manifests if m["kind"] != "Secret"]
    assert "abc123" not in json.dumps(others)
    secrets = [m["stringData"] for m in manifests if m["kind"] == "Secret"]
    for secret in secrets:
        host = of(manifests, "Service", "broker")["metadata"]["name"]
        assert secret["url"] == f"redis://:abc123@{host}:6379/0"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"broker": {"password": "abc"}}, "store.url or store.existingClaim"),
        ({"store": {"url": "s3://bucket"}}, "give broker.password"),
        ({**SHARED, "broker": {"enabled": False}}, "give broker.existingSecret"),
        ({**SHARED, "broker": {"password": "a@b"}}, "/broker/password"),
        ({**SHARED, "worker": {}}, "'worker' not allowed"),
        ({**SHARED, "workers": {"terminationGracePeriodSeconds": 30}}, "minimum"),
        ({**SHARED, "store": {"url": "/relative"}}, "/store/url"),
    ],
)
def test_wrong_values_are_refused_with_their_names(values, said):
    found = helm(values)
    assert found.returncode != 0
    assert said in found.stderr


def test_the_schema_knows_exactly_the_values_and_policies_that_there_are():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    policies = schema["scheduler"]["properties"]["policy"]["enum"]
    assert sorted(policies) == sorted(POLICIES)
    values = yaml_of(CHART / "values.yaml")
    assert set(values) == set(schema) - {"global"}
    for name, value in values.items():
        if "properties" in schema[name]:
            assert set(value) == set(schema[name]["properties"]), name
