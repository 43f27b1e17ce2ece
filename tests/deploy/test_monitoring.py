"""Dashboard, alerts and autoscaler name metrics that ``penstock metrics`` has, in valid PromQL."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations

import pytest
from deploy.deployed import DEPLOY, yaml_of
from ledgers.study_ledger import make_study, study_spec
from machines.system import program
from patience import PATIENCE
from penstock.app.host.settings import load
from ruamel.yaml import YAML

pytestmark = pytest.mark.extension("exports")

ALERTS = DEPLOY / "prometheus/alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana/penstock.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
#: Labels that Prometheus itself adds.
ADDED = {"instance", "job", "namespace", "service", "le"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(name, labels) of all that is exported."""
    from penstock.extensions.exports.prometheus import Collector

    home = tmp_path_factory.mktemp("home")
    make_study(home, study_spec(n_trials=4), turns=8)
    families = Collector(load(home=home)).collect()
    samples = [(s.name, s.labels) for family in families for s in family.samples]
    # Only where a broker answers.
    return [*samples, ("penstock_queued_tasks", {"device": "cpu.node.0"})]


def scaler():
    return (DEPLOY / "helm/penstock/templates/scaledobject.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "least"),
    [
        (" ".join(EXPRESSIONS), 10),
        (ALERTS.read_text(), 7),
        (re.sub(r"\{ \{\{-.*?\}\}(?:,| \})", "{", scaler()), 2),
        ((DEPLOY / "grafana/penstock.json").read_text(), 10),
    ],
    ids=["dashboard", "alerts", "keda", "dashboard's variables"],
)
def test_every_metric_and_label_that_is_named_is_exported(text, least, exported):
    names = {name for name, _ in exported}
    named = re.findall(r"\b(penstock_[a-z_]+)(?:\{([^}]*)\})?", text)
    assert len({name for name, _ in named}) >= least
    assert {name for name, _ in named} <= names
    for name, matchers in named:
        for label, matched in re.findall(r'(\w+)=~?\\?"([^"\\]*)', matchers):
            if label in ADDED:
                continue
            values = {labels.get(label) for known, labels in exported if known == name}
            assert set(matched.split("|")) <= values, (name, label)


def test_prometheus_takes_configuration_and_rules():
    command = [program("promtool", "prometheus"), "check", "config"]
    subprocess.run([*command, DEPLOY / "prometheus/prometheus.yml"], check=True, timeout=PATIENCE)


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path):
    plain = [
        each.replace("$__rate_interval", "5m").replace("$instance", ".*") for each in EXPRESSIONS
    ]
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(plain)]
    path = tmp_path / "rules.yml"
    YAML().dump({"groups": [{"name": "panels", "rules": rules}]}, path)
    subprocess.run(
        [program("promtool", "prometheus"), "check", "rules", path], check=True, timeout=PATIENCE
    )


#: Series scraped every minute, and the alerts that they raise.
STORIES = [
    ({'up{job="penstock",instance="a"}': "0x20"}, ["PenstockMetricsMissing"]),
    ({'penstock_scheduler_up{instance="a"}': "0x20"}, ["PenstockSchedulerDown"]),
    ({'penstock_ledger_up{instance="a"}': "0x20"}, ["PenstockLedgerDown"]),
    ({'penstock_broker_up{instance="a"}': "0x20"}, ["PenstockBrokerDown"]),
    (
        {
            'penstock_trials{instance="a",state="waiting"}': "3x20",
            'penstock_devices{instance="a",state="joined"}': "0x20",
        },
        ["PenstockNoDevices"],
    ),
    (
        {
            'penstock_trials{instance="a",state="waiting"}': "3x20",
            'penstock_devices{instance="a",state="joined"}': "1x20",
        },
        [],
    ),
    (
        {
            'penstock_epochs_total{instance="a",outcome="lost"}': "0+2x60",
            'penstock_epochs_total{instance="a",outcome="accepted"}': "0+10x60",
        },
        ["PenstockManyLost"],
    ),
    (
        {
            'penstock_open_attempts{instance="a"}': "2x120",
            'penstock_epochs_total{instance="a",outcome="accepted"}': "7x120",
        },
        ["PenstockNothingAccepted"],
    ),
    (
        {
            'penstock_dispatch_to_claim_seconds_bucket{instance="a",le="2.5"}': "0+1x60",
            'penstock_dispatch_to_claim_seconds_bucket{instance="a",le="5"}': "0+2x60",
            'penstock_dispatch_to_claim_seconds_bucket{instance="a",le="+Inf"}': "0+2x60",
        },
        ["PenstockSlowClaims"],
    ),
]


def test_an_alert_fires_when_it_should_and_not_otherwise(tmp_path):
    up = {'up{job="penstock",instance="a"}': "1x120"}
    names = [rule["alert"] for rule in yaml_of(ALERTS)["groups"][0]["rules"]]
    tests = []
    for series, fired in [*STORIES, ({}, [])]:
        minutes = "119m" if any("x120" in values for values in series.values()) else "19m"
        minutes = "59m" if any("x60" in values for values in series.values()) else minutes
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in (up | series).items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": minutes,
                        "exp_samples": [{"labels": "{}", "value": 1}] if name in fired else [],
                    }
                    for name in names
                ],
            }
        )
    assert {name for _, fired in STORIES for name in fired} == set(names)
    path = tmp_path / "tests.yml"
    YAML().dump({"rule_files": [str(ALERTS)], "tests": tests}, path)
    command = [program("promtool", "prometheus"), "test", "rules", path]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_dashboard_is_laid_out_without_overlaps():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for a, b in combinations(places, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    assert all(place["x"] + place["w"] <= 24 for place in places)
