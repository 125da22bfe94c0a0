"""The files in `deploy/`: they parse, their commands and settings are ours, and their metrics are in the catalogue."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from odradek.broker.observing.catalog import ALL, Kind
from odradek.cli.serve import command as serve
from odradek.config.broker import BrokerConfig
from odradek.config.environment import read_environment
from odradek.config.properties import parse_properties

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())
COMPOSE = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())
OTHERS = {"up", "process_open_fds", "process_max_fds", "process_resident_memory_bytes"}
"""Metrics of Prometheus itself and of its Python client."""


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    """Every expression of the rules and of the dashboard."""
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads((DEPLOY / "grafana/odradek.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    yield from (each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query")


def names(expression: str) -> set[str]:
    """The metrics in an expression: names that are not labels, functions or text."""
    outside = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(?:by|on) *\([^)]*\)", "", expression)
    return set(re.findall(r"\b(?:kafka|odradek|process)_\w+|\bup\b", outside))


def test_every_metric_of_the_dashboard_and_the_alerts_exists() -> None:
    exposed = {metric.exposed_name for metric in ALL} | OTHERS
    exposed |= {f"{metric.name}_bucket" for metric in ALL if metric.kind is Kind.HISTOGRAM}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = set().union(*map(names, expressions()))
    assert len(used) > 30, "the expressions are read"
    assert used - exposed - recorded == set()


def test_percentiles_have_the_names_of_the_histograms_that_they_come_from() -> None:
    """As Kafka's own, with the label `quantile`; a histogram has no sample of its bare name."""
    for rule in rules():
        if "quantile" in rule.get("labels", {}):
            assert f"rate({rule['record']}_bucket[" in rule["expr"]
            assert rule["expr"].startswith(f"histogram_quantile({rule['labels']['quantile']},")


def test_each_alert_has_a_row_of_what_to_do() -> None:
    page = (DEPLOY.parent / "docs/troubleshooting.md").read_text()
    for name in (rule["alert"] for rule in rules() if "alert" in rule):
        assert f"`{name}`" in page, name


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The parameters of an `odradek serve`; fails as the command would."""
    return serve.make_context("serve", arguments).params


def test_the_command_lines_of_the_unit_and_of_the_image_are_ours() -> None:
    unit = (DEPLOY / "systemd/odradek.service").read_text()
    (line,) = re.findall(r"^ExecStart=\S+/odradek (.*)$", unit, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", (DEPLOY / "container/Containerfile").read_text(), re.MULTILINE)
    for arguments in (shlex.split(line), json.loads(command)):
        assert arguments[0] == "serve"
        assert parsed(arguments[1:])["allow_anonymous_network"]
    with pytest.raises(click.NoSuchOption):
        parsed(["--no-such-option"])


def test_the_files_and_variables_of_each_deployment_make_a_broker_of_a_replicated_cluster() -> None:
    variables = parse_properties((DEPLOY / "systemd/environment").read_text())
    file = parse_properties((DEPLOY / "systemd/server.properties").read_text())
    image = parse_properties((DEPLOY / "container/server.properties").read_text())
    (pod,) = [
        document["spec"]["template"]["spec"]["containers"][0]
        for document in yaml.safe_load_all((DEPLOY / "kubernetes/odradek.yaml").read_text())
        if document["kind"] == "StatefulSet"
    ]
    deployments = [
        (variables, file),
        *(
            ({name: str(value) for name, value in service["environment"].items()}, image)
            for name, service in COMPOSE["services"].items()
            if name != "zookeeper"
        ),
        ({each["name"]: each.get("value", "0") for each in pod["env"]}, image),
    ]
    ids = []
    for environment, properties in deployments:
        settings = read_environment(environment)
        config = BrokerConfig.parse({**properties, **settings.properties})
        assert settings.notes == ()
        assert config.zookeeper_connect
        assert (config.default_replication_factor, config.min_insync_replicas) == (3, 2)
        assert config.offsets_topic_replication_factor == 3
        ids.append(config.broker_id)
    assert ids == [1, 1, 2, 3, 0]


def test_the_image_is_built_from_the_package_alone() -> None:
    """Everything is ignored but what the build reads; the build mounts it, so that no layer has the sources."""
    ignored, *kept = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#"]
    assert ignored == "*"
    paths = {Path(line[1:]) for line in kept if line.startswith("!")}
    assert all((ROOT / path).exists() for path in paths)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {
        str(Path(package).parent) for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    build = (DEPLOY / "container/Containerfile").read_text()
    needed |= set(re.findall(r"cp /tmp/odradek/(\S+)", build))
    assert paths == {Path(path) for path in needed}
    assert "RUN --mount=type=bind,target=/tmp/odradek,rw" in build
    assert not re.search("^(COPY|ADD) ", build, re.MULTILINE)


def test_a_namespace_of_kubernetes_comes_before_what_is_in_it() -> None:
    there = set()
    for document in yaml.safe_load_all((DEPLOY / "kubernetes/odradek.yaml").read_text()):
        if document["kind"] == "Namespace":
            there.add(document["metadata"]["name"])
        else:
            assert document["metadata"]["namespace"] in there


def test_the_page_names_each_variable_that_differs_between_hosts() -> None:
    (step,) = re.findall(r"^\| 5 \|.*$", (ROOT / "docs/deployment.md").read_text(), re.MULTILINE)
    for name in parse_properties((DEPLOY / "systemd/environment").read_text()):
        assert f"`{name}`" in step
