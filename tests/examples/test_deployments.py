"""The files for Grafana, compose, Kubernetes and Airflow: valid by schema; metrics, options and commands exist."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from payload_stores.offload_server.metrics import Metrics
from serde_chain.cli.commands import commands
from tests.environments import ROOT

EXAMPLES = ROOT / "examples"
DASHBOARDS = sorted((EXAMPLES / "grafana").glob("*.json"))
# Of OpenTelemetry's units, what Prometheus appends to names; annotations in braces add nothing.
UNITS = {"s": "_seconds", "By": "_bytes"}


def documents(path: Path) -> list[Any]:
    return [*yaml.safe_load_all(path.read_text(encoding="utf-8"))]


SCHEMAS = ROOT / "tests" / "data" / "deployments"
KINDS = {
    ("apps/v1", "Deployment"): "io.k8s.api.apps.v1.Deployment",
    ("batch/v1", "CronJob"): "io.k8s.api.batch.v1.CronJob",
    ("v1", "PersistentVolumeClaim"): "io.k8s.api.core.v1.PersistentVolumeClaim",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
}
MANIFESTS = [EXAMPLES / "offload-server" / "kubernetes.yaml", EXAMPLES / "sweep" / "kubernetes.yaml"]


def problems(schema: dict[str, Any], document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in jsonschema.Draft7Validator(schema).iter_errors(document)]


def problems_of_manifest(document: Any) -> list[str]:
    schema = json.loads((SCHEMAS / "kubernetes.json").read_text(encoding="utf-8"))
    kind = KINDS[document["apiVersion"], document["kind"]]
    return problems({**schema, "$ref": f"#/$defs/{kind}"}, document)


def problems_of_compose(document: Any) -> list[str]:
    return problems(json.loads((SCHEMAS / "compose-spec.json").read_text(encoding="utf-8")), document)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_manifests_are_valid(path: Path) -> None:
    for document in documents(path):
        assert problems_of_manifest(document) == []


def test_the_compose_file_is_valid() -> None:
    [compose] = documents(EXAMPLES / "offload-server" / "compose.yaml")
    assert problems_of_compose(compose) == []


def test_the_schemas_find_mistakes() -> None:
    [deployment] = [each for each in documents(MANIFESTS[0]) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container["ports"] = [{"containerport": 8080}]
    pod["terminationGracePeriodSeconds"] = "45s"
    found = "\n".join(problems_of_manifest(deployment))
    assert "'containerport' was unexpected" in found
    assert "'45s' is not of type 'integer'" in found
    [compose] = documents(EXAMPLES / "offload-server" / "compose.yaml")
    compose["services"]["proxy"]["restarts"] = "always"
    assert "'restarts' does not match" in "\n".join(problems_of_compose(compose))


def expressions(path: Path) -> Iterator[str]:
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def metrics_of_clients() -> set[str]:
    """The names under which Prometheus has the metrics in the table of docs/telemetry.md."""
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8").split("## Metrics")[1]
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    names = set()
    for listed, unit, what in rows:
        for name in re.findall(r"`([a-z_.]+)`", listed):
            base = name.replace(".", "_") + UNITS.get(unit, "")
            if "histogram" in what:
                names |= {f"{base}_{part}" for part in ("bucket", "sum", "count")}
            else:
                names.add(base if "in flight" in what else f"{base}_total")
    return names


def metrics_of_the_server() -> set[str]:
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    names = {"process_resident_memory_bytes"}
    for value in vars(Metrics()).values():
        if isinstance(value, (Counter, Gauge, Histogram)):
            names |= {family.name + suffix for family in value.describe() for suffix in suffixes[family.type]}
    return names


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_ask_for_metrics_that_exist(path: Path) -> None:
    known = metrics_of_clients() | metrics_of_the_server()
    for expression in expressions(path):
        sums = re.sub(r"\bby \([^)]*\)", "", expression)  # labels in parentheses
        named = set(re.findall(r"\b((?:serde_chain|messaging_client|offload|process)_[a-z_]+)(?=[{\[)])", sums))
        assert named, expression
        assert named <= known, expression


def test_labels_are_attributes() -> None:
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    known = {name.replace(".", "_") for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", page)}
    for expression in expressions(EXAMPLES / "grafana" / "clients.json"):
        for label in re.findall(r"\b(messaging_[a-z_]+|error_type|serde_chain_outcome)(?:=|[,)])", expression):
            assert label in {*known, "serde_chain_outcome"}, expression


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that some words call, and its arguments."""
    command: click.Command = commands
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check(words: list[str]) -> None:
    command, arguments = command_of(words)
    known = {name for param in command.params for name in param.opts}
    for option in (word.partition("=")[0] for word in arguments if word.startswith("-")):
        assert option in known, words


def test_servers_are_started_with_options_that_exist() -> None:
    [compose] = documents(EXAMPLES / "offload-server" / "compose.yaml")
    check(["offload-server", "run", *compose["services"]["offload-server"]["command"]])
    [deployment] = [
        each for each in documents(EXAMPLES / "offload-server" / "kubernetes.yaml") if each["kind"] == "Deployment"
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    check(["offload-server", "run", *container["args"]])
    # The index has one owner, and a stopping server has the time that docs/operators.md says.
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"]) == (1, "Recreate")
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 45
    assert compose["services"]["offload-server"]["stop_grace_period"] == "45s"


def volumes_of(job: Any) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
    return volumes


def test_jobs_are_started_with_options_that_exist() -> None:
    jobs = documents(EXAMPLES / "sweep" / "kubernetes.yaml")
    for job in jobs:
        [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        program, *words = container["command"]
        assert program == "serde-chain"
        check(words)
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
        if "--delete" in words:  # the manifest, in the current folder, outlives the pod
            claims = {each["name"] for each in volumes_of(job) if "persistentVolumeClaim" in each}
            kept = {each["mountPath"] for each in container["volumeMounts"] if each["name"] in claims}
            assert container["workingDir"] in kept
    assert [job["metadata"]["name"] for job in jobs] == ["sweep", "audit"]


def test_airflow_runs_commands_that_exist() -> None:
    source = (EXAMPLES / "sweep" / "airflow_dags.py").read_text(encoding="utf-8")
    compile(source, "airflow_dags.py", "exec")
    found = re.findall(r'bash_command=f"\{COMMAND\} ([^"]+)"', source)
    assert len(found) == 2
    for line in found:
        check(shlex.split(line))
