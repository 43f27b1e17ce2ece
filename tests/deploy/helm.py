"""A chart as Helm itself renders it: what it would send to a cluster, as JSON.

In the folder ``tests``:

    python -m deploy.helm CHART VALUES   # VALUES as JSON

Helm comes as a library (helm-sdkpy), which can lint and install but not print. So this installs
into a cluster that is not there: a server that says which kinds it knows, keeps what it is sent,
and agrees. A process of its own, because the library brings another runtime.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import helm_sdkpy
from patience import PATIENCE

KINDS = {
    "v1": ["Secret", "Service"],
    "apps/v1": ["StatefulSet"],
    "keda.sh/v1alpha1": ["ScaledObject"],
    "monitoring.coreos.com/v1": ["ServiceMonitor"],
}


class Cluster(BaseHTTPRequestHandler):
    """As much of Kubernetes' API as an install looks at."""

    sent: list[dict] = []  # noqa: RUF012 - one cluster a process

    def do_GET(self):
        path = self.path.partition("?")[0]
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if path == "/version":
            self._say({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        elif path == "/api":
            self._say({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self._say({"kind": "APIGroupList", "groups": [*map(_group, list(KINDS)[1:])]})
        elif version in KINDS:
            resources = [_resource(kind) for kind in KINDS[version]]
            kinds = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
            self._say(kinds)
        elif path.endswith("/secrets"):  # earlier releases
            self._say({"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []})
        else:
            failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            self._say(failure | {"reason": "NotFound", "code": 404}, 404)

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        if "json" in kind:  # Helm's own record of the release is not
            self.sent.append(json.loads(raw))
        self._answer(raw, kind, 201)

    do_PUT = do_PATCH = do_POST  # noqa: N815 - as http.server calls them

    def _say(self, body, status=200):
        self._answer(json.dumps(body).encode(), "application/json", status)

    def _answer(self, raw, kind, status):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


def _group(version):
    group, _, name = version.partition("/")
    here = {"groupVersion": version, "version": name}
    return {"name": group, "versions": [here], "preferredVersion": here}


def _resource(kind):
    verbs = ["create", "get", "list", "patch"]
    return {"name": f"{kind.lower()}s", "namespaced": True, "kind": kind, "verbs": verbs}


async def render(chart, values, kubeconfig):
    configuration = helm_sdkpy.Configuration("tuning", str(kubeconfig))
    install = helm_sdkpy.Install(configuration)
    await install.run("digits", chart, values, wait=False, timeout=int(PATIENCE))


def main(chart, values):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    named = {"cluster": "here", "user": "nobody"}
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "here", "context": named}],
        "current-context": "here",
    }
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "config")
        kubeconfig.write_text(json.dumps(configuration))
        try:
            asyncio.run(render(chart, values, kubeconfig))
        except helm_sdkpy.HelmError as error:
            sys.exit(str(error))
    print(json.dumps(Cluster.sent))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
