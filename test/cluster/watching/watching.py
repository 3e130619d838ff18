"""Lists and watches with the Python client while somebody breaks its watches, and tells what each watch delivered.

Takes one argument, the JSON that `main.go` takes, and prints the same lines: `{"resumed": i}` for every watch that goes
on where an earlier one ended, and a report once every watcher has seen the object named `end`.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import urllib3
from kubernetes import client, config, watch

END = "end"
printing = threading.Lock()


def say(value: dict[str, Any]) -> None:
    """One line of output."""
    with printing:
        print(json.dumps(value), flush=True)


class Watcher:
    """One list-and-watch loop as the client's documentation has it, with a connection pool of its own."""

    def __init__(self, index: int, kind: str, server: str, options: dict[str, Any]) -> None:
        self.index = index
        self.kind = kind
        self.timeout = {"timeout_seconds": 1} if server == options["direct"] else {}
        self.namespace = options["namespace"]
        self.api = self.connect(options["kubeconfig"], server)
        self.records: list[dict[str, str]] = []
        self.gaps: list[dict[str, str]] = []
        self.known: dict[str, str] = {}
        self.resumed = 0
        self.version = ""
        self.is_listed = False

    @staticmethod
    def connect(kubeconfig: str, server: str) -> client.ApiClient:
        """A client that shares its connections with no other watcher and leaves it to us to try again."""
        settings = client.Configuration()
        config.load_kube_config(kubeconfig, client_configuration=settings)
        settings.host = server
        settings.retries = False
        return client.ApiClient(settings)

    def call(self) -> Callable[..., Any]:
        """The client's function that lists the kind."""
        if self.kind == "configmaps":
            return functools.partial(client.CoreV1Api(self.api).list_namespaced_config_map, self.namespace)
        custom = client.CustomObjectsApi(self.api).list_namespaced_custom_object
        return functools.partial(custom, "agents.x-k8s.io", "v1beta1", self.namespace, "sandboxes")

    def run(self) -> None:
        """Lists, then watches until the last object comes; lists again where the server has forgotten."""
        while True:
            try:
                self.list()
                while not self.watch():
                    pass
                return
            except client.ApiException as refused:
                # No status at all is how the client tells of a handshake that was cut.
                if refused.status not in (0, 410):
                    raise
            except (urllib3.exceptions.HTTPError, OSError):
                pass  # The list was cut.

    def list(self) -> None:
        """Takes the server's word for what there is."""
        answer = self.call()()
        plain = self.api.sanitize_for_serialization(answer)
        since, self.version = self.version, plain["metadata"]["resourceVersion"]
        self.is_listed = True
        self.gaps.append({"from": since, "to": self.version})
        say({"listed": self.index})
        found = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in plain["items"]}
        for uid in [uid for uid in self.known if uid not in found]:
            self.note("deleted", uid, "")
        for uid, version in found.items():
            if self.known.get(uid) != version:
                self.note("updated" if uid in self.known else "added", uid, version)

    def watch(self) -> bool:
        """One watch, from where the last one ended; true when the last object came."""
        stream = watch.Watch(return_type="V1ConfigMap" if self.kind == "configmaps" else "object")
        if not self.is_listed:
            self.resumed += 1
            say({"resumed": self.index})
        self.is_listed = False
        try:
            for event in stream.stream(self.call(), resource_version=self.version, **self.timeout):
                meta = event["raw_object"]["metadata"]
                self.version = meta["resourceVersion"]
                self.note(event["type"].lower().replace("modified", "updated"), meta["uid"], self.version)
                if meta["name"] == END:
                    return True
        except client.ApiException as refused:
            if refused.status != 0:
                raise
        except (urllib3.exceptions.HTTPError, OSError):
            pass  # Cut: what matters is that the next one goes on from here.
        return False

    def note(self, what: str, uid: str, version: str) -> None:
        """Records one change."""
        self.records.append({"what": what, "uid": uid, "version": version})
        if what == "deleted":
            self.known.pop(uid, None)
        else:
            self.known[uid] = version

    def report(self) -> dict[str, Any]:
        """All that this watcher saw."""
        return {
            "kind": self.kind,
            "resumed": self.resumed,
            "records": self.records,
            "gaps": self.gaps,
            "stored": self.known,
        }


def main() -> None:
    """Runs the watchers to their end."""
    options = json.loads(sys.argv[1])
    servers = [options["proxied"]] * options["cut"] + [options["direct"]] * options["closed"]
    kinds = ("configmaps", "sandboxes")
    wanted = [(kind, server) for server in servers for kind in kinds]
    watchers = [Watcher(index, kind, server, options) for index, (kind, server) in enumerate(wanted)]
    threads = [threading.Thread(target=watcher.run) for watcher in watchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say({"watchers": [watcher.report() for watcher in watchers]})


main()
