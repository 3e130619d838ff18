"""How handles come into being."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from agent_sandbox_sdk._connection import Connection, acquire_connection
from agent_sandbox_sdk._kube import CLAIMS, SANDBOXES, KubeClient, KubeObject
from agent_sandbox_sdk._objects import claim_object, sandbox_object
from agent_sandbox_sdk._plane import DataPlane
from agent_sandbox_sdk._snapshot_spec import inherited_spec
from agent_sandbox_sdk._verdict import judge_claim
from agent_sandbox_sdk._wait import Wait, await_ready
from agent_sandbox_sdk.engine import Engine
from agent_sandbox_sdk.errors import SandboxError, code_of_status
from agent_sandbox_sdk.options import CallTarget, ClaimOptions, CreateOptions, EngineOptions, assert_known, seconds_of

if TYPE_CHECKING:
    from agent_sandbox_sdk._async_sandbox import AsyncSandbox

T = TypeVar("T")
_ENGINE_KEYS = ("kubeconfig", "context", "data_dir", "router_url")
# An image of a gigabyte over a slow line takes minutes; longer than that, a user wants to know.
_READY_SECONDS = 180.0


def engine_of(options: Mapping[str, Any]) -> Engine:
    """The engine that some options mean."""
    engine = options.get("engine")
    if engine is not None and not isinstance(engine, Engine):
        kind = type(engine).__name__
        raise SandboxError(
            "invalid-argument",
            f"engine: a {kind} is no Engine; use Engine.find(...), or pass {', '.join(_ENGINE_KEYS)}",
        )
    return engine if engine is not None else Engine.find(**{k: options[k] for k in _ENGINE_KEYS if k in options})


def namespace_of(engine: Engine, options: Mapping[str, Any]) -> str:
    """The namespace that some options mean."""
    return str(options.get("namespace") or os.environ.get("AGENT_SANDBOX_NAMESPACE") or engine.namespace)


async def _connected(
    options: Mapping[str, Any], act: Callable[[Connection, KubeClient, str], Coroutine[Any, Any, T]]
) -> T:
    """Runs with a connection, which the handle keeps if there is one in the end."""
    engine = engine_of(options)
    connection = acquire_connection(engine)
    try:
        return await act(connection, KubeClient(connection), namespace_of(engine, options))
    except BaseException:
        await connection.release()
        raise


async def create(cls: type[AsyncSandbox], image: str | None, name: str | None, options: CreateOptions) -> AsyncSandbox:
    """Makes a sandbox; one that does not become ready is deleted again."""
    assert_known("create", options, CreateOptions, "image", "name")

    async def act(connection: Connection, kube: KubeClient, namespace: str) -> AsyncSandbox:
        made = await _make(kube, namespace, image, name or f"sandbox-{secrets.token_hex(4)}", options, connection)
        box = cls(connection, made, is_owned=True)
        try:
            await _ready(connection, kube, made, options)
        except BaseException:
            # The error that is on its way says more than that the clean-up failed too.
            with contextlib.suppress(SandboxError):
                await box.delete()
            raise
        return box

    return await _connected(cast(Mapping[str, Any], options), act)


async def _make(
    kube: KubeClient, namespace: str, image: str | None, name: str, options: CreateOptions, connection: Connection
) -> KubeObject:
    is_own = connection.engine.is_local or await _is_own_engine(kube)
    inherited = await inherited_spec(kube, namespace, image, options)
    now = datetime.now(timezone.utc)
    made = sandbox_object(image, name, options, now=now, is_own_engine=is_own, inherited=inherited)
    return await kube.create(SANDBOXES, namespace, made)


async def _is_own_engine(kube: KubeClient) -> bool:
    return "+agent-sandbox" in str((await kube.request("GET", "/version")).get("gitVersion", ""))


async def _ready(connection: Connection, kube: KubeClient, known: KubeObject, options: Mapping[str, Any]) -> None:
    seconds = seconds_of(options.get("ready_timeout", _READY_SECONDS))
    if seconds > 0:
        await await_ready(kube, known, ready_timeout=seconds, is_local=connection.engine.is_local)


async def open_or_create(cls: type[AsyncSandbox], name: str, image: str | None, options: CreateOptions) -> AsyncSandbox:
    """The sandbox of that name, made where it is missing."""
    assert_known("open", options, CreateOptions, "image")

    async def act(connection: Connection, kube: KubeClient, namespace: str) -> AsyncSandbox:
        try:
            found = await kube.get(SANDBOXES, namespace, name)
        except SandboxError as error:
            if error.code != "not-found":
                raise
            found = await _make_or_get(kube, namespace, image, name, options, connection)
        if (found.get("spec") or {}).get("operatingMode") == "Suspended":
            awake = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"operatingMode": "Running"}}
            found = await kube.patch(SANDBOXES, namespace, name, awake)
        await _ready(connection, kube, found, cast(Mapping[str, Any], options))
        return cls(connection, found)

    return await _connected(cast(Mapping[str, Any], options), act)


async def _make_or_get(
    kube: KubeClient, namespace: str, image: str | None, name: str, options: CreateOptions, connection: Connection
) -> KubeObject:
    try:
        return await _make(kube, namespace, image, name, options, connection)
    except SandboxError as error:
        # Another caller was faster: its sandbox is the one that is meant.
        if error.code != "already-exists":
            raise
        return await kube.get(SANDBOXES, namespace, name)


async def claim(cls: type[AsyncSandbox], pool: str, options: ClaimOptions) -> AsyncSandbox:
    """Takes a sandbox from a pool; a claim that fails is deleted again."""
    assert_known("claim", options, ClaimOptions)

    async def act(connection: Connection, kube: KubeClient, namespace: str) -> AsyncSandbox:
        name = options.get("name") or f"claim-{secrets.token_hex(4)}"
        made = await kube.create(CLAIMS, namespace, claim_object(pool, name, options, now=datetime.now(timezone.utc)))
        try:
            seconds = seconds_of(options.get("ready_timeout", _READY_SECONDS))
            bound = await Wait(kube, CLAIMS, namespace, name, judge_claim).within(seconds)
            sandbox = await kube.get(SANDBOXES, namespace, bound["status"]["sandbox"]["name"])
        except BaseException:
            with contextlib.suppress(SandboxError):
                await kube.delete(CLAIMS, namespace, name, uid=made["metadata"].get("uid"))
            raise
        return cls(connection, sandbox, is_owned=True)

    return await _connected(cast(Mapping[str, Any], options), act)


async def get(cls: type[AsyncSandbox], name: str, options: CallTarget) -> AsyncSandbox:
    """The sandbox of that name."""

    async def act(connection: Connection, kube: KubeClient, namespace: str) -> AsyncSandbox:
        return cls(connection, await kube.get(SANDBOXES, namespace, name))

    return await _connected(cast(Mapping[str, Any], options), act)


async def list_sandboxes(
    cls: type[AsyncSandbox], labels: Mapping[str, str] | str | None, all_namespaces: bool, options: CallTarget
) -> AsyncGenerator[AsyncSandbox, None]:
    """Every sandbox of a namespace, or of all."""
    engine = engine_of(cast(Mapping[str, Any], options))
    namespace = None if all_namespaces else namespace_of(engine, cast(Mapping[str, Any], options))
    selector = labels if isinstance(labels, str) else ",".join(f"{k}={v}" for k, v in (labels or {}).items())
    connection = acquire_connection(engine)
    try:
        params = {"labelSelector": selector} if selector else {}
        async for item in KubeClient(connection).list(SANDBOXES, namespace, params):
            yield cls(acquire_connection(engine), item)
    finally:
        await connection.release()


def to_json(namespace: str, name: str, uid: str, claim_name: str | None) -> str:
    """A handle as text, the same in every language."""
    fields = {"namespace": namespace, "name": name, "uid": uid}
    return json.dumps(fields if claim_name is None else {**fields, "claim": claim_name})


class ClaimReference(NamedTuple):
    """A claim, and which of all claims of that name."""

    name: str
    uid: str


def claim_of(sandbox: KubeObject) -> ClaimReference | None:
    """The claim that owns a Sandbox."""
    for owner in sandbox["metadata"].get("ownerReferences") or []:
        if owner.get("kind") == "SandboxClaim" and owner.get("controller"):
            return ClaimReference(str(owner["name"]), str(owner.get("uid", "")))
    return None


async def from_json(cls: type[AsyncSandbox], text: str, options: EngineOptions) -> AsyncSandbox:
    """The handle that was written; the sandbox must still be the same one."""
    try:
        handle = json.loads(text)
        namespace, name = str(handle["namespace"]), str(handle["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxError("invalid-argument", "not a handle of a sandbox") from error

    async def act(connection: Connection, kube: KubeClient, _namespace: str) -> AsyncSandbox:
        found = await kube.get(SANDBOXES, namespace, name)
        if handle.get("uid") and found["metadata"].get("uid") != handle["uid"]:
            raise SandboxError("not-found", f"sandbox {namespace}/{name} was replaced by another of its name")
        return cls(connection, found)

    return await _connected(cast(Mapping[str, Any], options), act)


async def make_link(
    connection: Connection, plane: DataPlane, namespace: str, name: str, port: int, ttl_seconds: float
) -> str:
    """Asks the router for a signed link."""
    body = {"namespace": namespace, "name": name, "port": port, "ttlSeconds": max(1, round(ttl_seconds))}
    headers = {"content-type": "application/json", **connection.authorization()}
    url = f"{plane.router_url}/_agent-sandbox/links"
    response = await connection.http.post(url, content=json.dumps(body).encode(), headers=headers)
    if response.status_code != 201:
        raise SandboxError(code_of_status(response.status_code), f"no link was made: {response.text[:500]}")
    return _link_base(plane.router_url, is_local=connection.engine.is_local) + str(response.json()["path"])


def _link_base(router_url: str, *, is_local: bool) -> str:
    """Where a link begins: the engine of this machine speaks cleartext too, and others do not know its authority."""
    is_loopback = urlsplit(router_url).hostname in ("127.0.0.1", "::1", "localhost")
    return router_url.replace("https://", "http://", 1) if is_local and is_loopback else router_url
