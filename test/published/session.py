"""One published client in one connection mode, what the checks need of it, and what they have seen."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import k8s_agent_sandbox
from k8s_agent_sandbox import models
from wire import Watch, Wire

CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
ROUTED = ("direct", "direct-tls", "direct-mtls", "gateway", "tunnel")


def connection(mode: str, options: dict[str, Any]) -> Any:
    """The connection configuration of a mode."""
    match mode:
        case "direct":
            return models.SandboxDirectConnectionConfig(api_url=options["apiUrl"])
        case "direct-tls":
            return models.SandboxDirectConnectionConfig(
                api_url=options["tlsUrl"],
                ca_cert=options["ca"],
                extra_headers={"Authorization": f"Bearer {options['token']}"},
            )
        case "direct-mtls":
            return models.SandboxDirectConnectionConfig(
                api_url=options["tlsUrl"], ca_cert=options["ca"], client_cert=(options["cert"], options["key"])
            )
        case "gateway":
            return models.SandboxGatewayConnectionConfig(gateway_name=options["gateway"])
        case "tunnel":
            return models.SandboxLocalTunnelConnectionConfig()
        case "in-cluster":
            return models.SandboxInClusterConnectionConfig()
        case "sandboxd-tunnel":
            return models.SandboxdPodTunnelConnectionConfig()
        case "sandboxd-pod-ip":
            return models.SandboxdInClusterConnectionConfig(mode="in-cluster-pod-ip")
        case "sandboxd-service":
            return models.SandboxdInClusterConnectionConfig(mode="in-cluster-service")
    raise ValueError(mode)


async def settle(value: Any) -> Any:
    """The value, awaited where it is awaitable: sync and async clients have the same surface."""
    return await value if inspect.isawaitable(value) else value


class Session:
    """One client, its sandbox, and the findings of the check that runs."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.mode: str = options["mode"]
        self.pool: str = options["pool"]
        self.team: str = options["team"]
        self.is_new: bool = options["version"] != "0.5.6"
        self.is_daemon = self.mode.startswith("sandboxd")
        self.api = Wire(options["server"], self.tls(with_certificate=True), {})
        self.asserted = 0
        self.failures: list[str] = []
        self.client = self.new_client()
        self.sandbox: Any = None
        self.short: Any = None
        self.made = 0
        # Nothing is ever said on it and nothing ends it: see K17.
        self.idle = Watch(self.api, f"{CLAIMS}?watch=true&fieldSelector=metadata.name%3Dnobody-{self.team}")

    async def open(self) -> None:
        """Makes the sandbox that most checks use, and one that is to end by itself."""
        self.sandbox = await settle(self.client.create_sandbox(self.pool, labels={"team": self.team}))
        self.short = await settle(self.client.create_sandbox(self.pool, shutdown_after_seconds=15))

    def new_client(self) -> Any:
        """A client of its own."""
        kind = "AsyncSandboxClient" if self.options["isAsync"] else "SandboxClient"
        return getattr(k8s_agent_sandbox, kind)(connection_config=connection(self.mode, self.options))

    def tls(self, *, with_certificate: bool) -> ssl.SSLContext:
        """Trust in the engine's own authority."""
        context = ssl.create_default_context(cafile=self.options["ca"])
        context.check_hostname = False
        if with_certificate:
            context.load_cert_chain(self.options["cert"], self.options["key"])
        return context

    async def wire(self, sandbox: Any = None, *, extra: dict[str, str] | None = None) -> Wire:
        """A raw connection to where the client sends a sandbox's requests, with the headers that route there."""
        box = sandbox or self.sandbox
        connector = box.connector
        connect = getattr(connector, "connect", None) or connector._resolve_base_url
        url = await settle(connect())
        headers = {"X-Sandbox-ID": box.sandbox_id, "X-Sandbox-Namespace": "default", "X-Sandbox-Port": "8888"}
        if self.mode == "direct-tls":
            headers["Authorization"] = f"Bearer {self.options['token']}"
        context = self.tls(with_certificate=self.mode == "direct-mtls") if url.startswith("https:") else None
        return Wire(url, context, {**(headers if self.mode in ROUTED else {}), **(extra or {})})

    def same(self, what: str, seen: Any, wanted: Any) -> None:
        """One assertion: what was seen is what is wanted."""
        self.asserted += 1
        if seen != wanted:
            self.failures.append(f"{what}: {seen!r} instead of {wanted!r}"[:600])

    def holds(self, what: str, holds: bool, seen: Any) -> None:
        """One assertion: it holds; what was seen is for the report."""
        self.asserted += 1
        if not holds:
            self.failures.append(f"{what}: {seen!r}"[:600])

    async def raises(self, what: str, work: Callable[[], Any], wanted: str) -> None:
        """One assertion: the work raises an error of this name, with the status code where it has one."""
        try:
            seen = f"nothing but {await settle(work())!r}"
        except Exception as error:
            code = getattr(error, "status_code", None) or getattr(error, "status", None)
            seen = type(error).__name__ + (f" {code}" if code is not None else "")
        self.same(what, seen, wanted)

    async def run(self, command: str, sandbox: Any = None) -> str:
        """What a shell command printed; raises when it failed."""
        quoted = command.replace("'", "'\\''")
        ran = await settle((sandbox or self.sandbox).commands.run(f"sh -c '{quoted}'"))
        if ran.exit_code != 0:
            raise RuntimeError(f"{command}: {ran}")
        return str(ran.stdout)

    def name(self, purpose: str) -> str:
        """A name that no other check and no other mode uses."""
        self.made += 1
        return f"{purpose}-{self.team}-{self.made}"

    def claim(self, name: str, pool: str | None = None, **spec: Any) -> dict[str, Any]:
        """A claim as a client would write it."""
        return {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
            "kind": "SandboxClaim",
            "metadata": {"name": name},
            "spec": {"warmPoolRef": {"name": pool or self.pool}, **spec},
        }

    def made_claim(self, name: str, pool: str | None = None, **spec: Any) -> dict[str, Any]:
        """A claim, made; raises unless it was."""
        made = self.api.call("POST", CLAIMS, self.claim(name, pool, **spec))
        if made.status != 201:
            raise RuntimeError(f"{made.status} {made.body!r}")
        return made.json()  # type: ignore[no-any-return]

    def watch(self, name: str, version: str) -> Watch:
        """A watch of one claim."""
        query = f"fieldSelector=metadata.name%3D{name}&resourceVersion={version}&timeoutSeconds=60&watch=true"
        return Watch(self.api, f"{CLAIMS}?{query}")

    async def becomes(self, question: Callable[[], bool | Awaitable[bool]], patience: float = 60) -> bool:
        """Whether the answer is yes within the time that the SDK's own tests allow."""
        end = time.monotonic() + patience
        while not await settle(question()):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.1)
        return True


def ready(event_or_object: dict[str, Any]) -> dict[str, Any]:
    """The Ready condition of an object or of an event's."""
    found = event_or_object.get("object", event_or_object)
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "Ready"), {})
