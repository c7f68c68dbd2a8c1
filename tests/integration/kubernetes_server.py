# SPDX-License-Identifier: Apache-2.0
"""As much of a Kubernetes API server as kubectl needs to cordon, drain and annotate nodes.

Paths, objects and answers are those of the Kubernetes API (v1, policy/v1); a pod takes PATIENCE
seconds to end after its eviction, and one that a PodDisruptionBudget guards is refused at first.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATIENCE = 1.0
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: not-in-any-message}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
RESOURCES: dict[str, list[tuple[str, str, bool]]] = {
    "v1": [("nodes", "Node", False), ("pods", "Pod", True), ("pods/eviction", "Eviction", True)],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
    "apps/v1": [("daemonsets", "DaemonSet", True)],
}
VERBS = ["create", "delete", "get", "list", "patch"]
Answer = tuple[int, dict[str, Any]]


@dataclass
class Pod:
    """A pod of the namespace `default`; `refusals` is how often its eviction is refused."""

    node: str
    owner: str = "ReplicaSet"
    refusals: int = 0
    ends: float = 0.0


@dataclass
class Cluster:
    """What the API server knows; `port` is where it listens."""

    nodes: dict[str, dict[str, Any]]
    pods: dict[str, Pod]
    port: int = 0
    asked: list[str] = field(default_factory=list)

    @property
    def kubeconfig(self) -> str:
        return KUBECONFIG.format(port=self.port)

    def is_closed(self, name: str) -> bool:
        return bool(self.nodes[name]["spec"].get("unschedulable"))

    def notes(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.nodes[name]["metadata"].get("annotations", {})
        return found

    def answer(self, verb: str, url: str, body: dict[str, Any]) -> Answer:
        """The answer to a request."""
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        match [*path.strip("/").split("/")]:
            case ["api"]:
                return 200, {"kind": "APIVersions", "versions": ["v1"]}
            case ["apis"]:
                return 200, describe_groups()
            case ["api", "v1"] | ["apis", _, "v1"]:
                group = path.strip("/").partition("/")[2]
                return 200, describe_resources(group) if group in RESOURCES else {}
            case ["api", "v1", "nodes", name] if name in self.nodes:
                if verb == "PATCH":
                    merge(self.nodes[name], body)
                return 200, self.nodes[name]
            case ["api", "v1", "pods"]:
                node = query["fieldSelector"][0].partition("spec.nodeName=")[2]
                items = [show_pod(k, p) for k, p in self.running().items() if p.node == node]
                return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
            case ["api", "v1", "namespaces", "default", "pods", name] if name in self.running():
                return 200, show_pod(name, self.pods[name])
            case ["api", "v1", "namespaces", "default", "pods", name, "eviction"]:
                return self.evict(self.pods[name])
            case ["apis", "apps", "v1", "namespaces", "default", "daemonsets", name]:
                return 200, {"kind": "DaemonSet", "apiVersion": "apps/v1",
                             "metadata": {"name": name, "namespace": "default"}}  # fmt: skip
        kind, name = path.split("/")[-2:]
        return status(404, "NotFound", f'{kind} "{name}" not found', {"kind": kind, "name": name})

    def running(self) -> dict[str, Pod]:
        return {k: pod for k, pod in self.pods.items() if not 0 < pod.ends <= time.monotonic()}

    def evict(self, pod: Pod) -> Answer:
        if pod.refusals:
            pod.refusals -= 1
            what = "Cannot evict pod as it would violate the pod's disruption budget."
            return status(429, "TooManyRequests", what, {})
        pod.ends = pod.ends or time.monotonic() + PATIENCE
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def make_cluster(names: list[str], pods: dict[str, Pod]) -> Cluster:
    def node(name: str) -> dict[str, Any]:
        return {"kind": "Node", "apiVersion": "v1", "spec": {}, "metadata": {"name": name}}

    return Cluster({name: node(name) for name in names}, pods)


@contextlib.contextmanager
def serving(cluster: Cluster) -> Iterator[None]:
    """Listen on a port of 127.0.0.1, which is written into the cluster."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            cluster.asked.append(f"{self.command} {self.path}")
            code, value = cluster.answer(self.command, self.path, body)
            content = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PATCH = do_POST = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None:
            del words

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        cluster.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def describe_groups() -> dict[str, Any]:
    def group(version: str) -> dict[str, Any]:
        one = {"groupVersion": version, "version": "v1"}
        return {"name": version.partition("/")[0], "versions": [one], "preferredVersion": one}

    groups = [group(version) for version in RESOURCES if "/" in version]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def describe_resources(group: str) -> dict[str, Any]:
    listed = [
        {
            "name": name, "singularName": kind.lower(), "namespaced": spaced, "kind": kind,
            "verbs": VERBS,
            **({"group": "policy", "version": "v1"} if kind == "Eviction" else {}),
        }
        for name, kind, spaced in RESOURCES[group]
    ]  # fmt: skip
    return {"kind": "APIResourceList", "groupVersion": group, "resources": listed}


def show_pod(name: str, pod: Pod) -> dict[str, Any]:
    owners = [{"apiVersion": "apps/v1", "kind": pod.owner, "name": f"{name}-owner", "uid": "1",
               "controller": True}] if pod.owner else []  # fmt: skip
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}",
                "ownerReferences": owners}  # fmt: skip
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata,
            "spec": {"nodeName": pod.node, "containers": []},
            "status": {"phase": "Running"}}  # fmt: skip


def status(code: int, reason: str, message: str, details: dict[str, str]) -> Answer:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                  "reason": reason, "message": message, "details": details}  # fmt: skip


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """A JSON merge patch (RFC 7386), which is what kubectl's patches of nodes amount to."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
