"""A small Kubernetes client: the verbs that sandboxes need, and following one object."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent_sandbox_sdk._connection import Connection
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError, code_of_reason, code_of_status

if TYPE_CHECKING:
    import httpx

KubeObject = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One kind of object and where the API serves it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """The URL path of the collection or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
        return f"{root}{scope}/{self.plural}" + (f"/{quote(name, safe='')}" if name is not None else "")


SANDBOXES = Resource("agents.x-k8s.io", "v1beta1", "sandboxes", "Sandbox")
CLAIMS = Resource("extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims", "SandboxClaim")
TEMPLATES = Resource("extensions.agents.x-k8s.io", "v1beta1", "sandboxtemplates", "SandboxTemplate")
POOLS = Resource("extensions.agents.x-k8s.io", "v1beta1", "sandboxwarmpools", "SandboxWarmPool")
SNAPSHOTS = Resource("agent-sandbox.dev", "v1alpha1", "sandboxsnapshots", "SandboxSnapshot")
PODS = Resource("", "v1", "pods", "Pod")

_FIELD_MANAGER = "agent-sandbox-sdk"
# A watch that broke is opened again after this; doubled each time in a row, up to two seconds.
_REWATCH_FIRST_SECONDS = 0.1
_REWATCH_MAX_SECONDS = 2.0
# Longer than any answer to a plain request takes; watches and logs have no limit.
_REQUEST_SECONDS = 60.0
# How long a call that was given up waits until the object it made is deleted.
_UNDO_SECONDS = 5.0


class KubeClient:
    """Speaks to the API server. Every method raises SandboxError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> KubeObject:
        """One request with a JSON answer."""
        try:
            response = await within(
                self._connection.http.request(
                    method,
                    self._connection.engine.credentials.server + path,
                    params=params,
                    content=None if body is None else json.dumps(body).encode(),
                    headers=self._headers() | ({} if body is None else {"content-type": content_type}),
                ),
                _REQUEST_SECONDS,
            )
        except asyncio.TimeoutError as error:
            raise SandboxError("request-timeout", f"the API server did not answer {method} {path} in time") from error
        except _transport_error() as error:
            raise self._unreachable(error) from error
        if response.status_code >= 300:
            raise failure_of(f"{method} {path}", response.status_code, response.content, response.headers)
        return _parse(response.content, path)

    async def get(self, resource: Resource, namespace: str, name: str) -> KubeObject:
        """One object."""
        return await self.request("GET", resource.path(namespace, name))

    async def create(self, resource: Resource, namespace: str, obj: KubeObject) -> KubeObject:
        """Creates; a field that the server does not know is an error. A caller who gives up finds it deleted again."""
        params = {"fieldValidation": "Strict", "fieldManager": _FIELD_MANAGER}
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        creating = asyncio.ensure_future(self.request("POST", resource.path(namespace), params=params, body=whole))
        try:
            # Not cut off with the caller, because it would be unknown then whether the object is there.
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxError, asyncio.TimeoutError):
                made = (await within(creating, _UNDO_SECONDS))["metadata"]
                await self.delete(resource, namespace, made["name"], uid=made["uid"])
            raise

    async def patch(self, resource: Resource, namespace: str, name: str, patch: object) -> KubeObject:
        """Merges a patch into the object."""
        return await self.request(
            "PATCH",
            resource.path(namespace, name),
            params={"fieldValidation": "Strict", "fieldManager": _FIELD_MANAGER},
            body=patch,
            content_type="application/merge-patch+json",
        )

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str | None = None) -> None:
        """Deletes; what is gone already, or has been replaced by another of its name, is success."""
        body: KubeObject = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", resource.path(namespace, name), body=body)
        except SandboxError as error:
            if error.code not in ("not-found", "conflict"):
                raise

    async def list(
        self, resource: Resource, namespace: str | None, params: Mapping[str, str] | None = None
    ) -> AsyncGenerator[KubeObject, None]:
        """Every object, page by page."""
        query = {"limit": "200", **(params or {})}
        while True:
            page = await self.request("GET", resource.path(namespace), params=query)
            for item in page.get("items") or []:
                yield item
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return
            query["continue"] = following

    async def watch(
        self, resource: Resource, namespace: str, params: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, KubeObject], None]:
        """Events as they come; ends when the server ends the watch."""
        query = {"watch": "true", "allowWatchBookmarks": "true", **params}
        async with contextlib.aclosing(self.lines(resource.path(namespace), query)) as lines:
            async for line in lines:
                event = json.loads(line)
                kind, obj = event.get("type", ""), event.get("object") or {}
                if kind == "ERROR":
                    raise _status_error("watch", obj, int(obj.get("code", 500)))
                yield kind, obj

    async def lines(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Lines of a streamed answer, without their ends."""
        rest = b""
        async with contextlib.aclosing(self.chunks(path, params)) as chunks:
            async for chunk in chunks:
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line
        if rest:
            yield rest

    async def chunks(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Bytes of a streamed answer."""
        connection = self._connection
        url = connection.engine.credentials.server + path
        try:
            async with connection.http.stream("GET", url, params=params, headers=self._headers()) as response:
                if response.status_code >= 300:
                    raise failure_of(f"GET {path}", response.status_code, await response.aread(), response.headers)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except _transport_error() as error:
            raise self._unreachable(error) from error

    async def follow(self, resource: Resource, namespace: str, name: str) -> AsyncGenerator[KubeObject | None, None]:
        """States of one object: the present one, then each later one; None when it is gone. Never ends by itself."""
        pause = _REWATCH_FIRST_SECONDS
        while True:
            try:
                found = await self._get_or_none(resource, namespace, name)
                yield found
                version = (found or {}).get("metadata", {}).get("resourceVersion", "0")
                params = {"fieldSelector": f"metadata.name={name}", "resourceVersion": version}
                async with contextlib.aclosing(self.watch(resource, namespace, params)) as events:
                    async for kind, obj in events:
                        pause = _REWATCH_FIRST_SECONDS
                        if kind != "BOOKMARK":
                            yield None if kind == "DELETED" else obj
            except SandboxError as error:
                # An expired or broken watch begins again; a refusal does not become better by asking again.
                if not error.is_retryable and error.code != "sandbox-expired":
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, _REWATCH_MAX_SECONDS)

    async def _get_or_none(self, resource: Resource, namespace: str, name: str) -> KubeObject | None:
        try:
            return await self.get(resource, namespace, name)
        except SandboxError as error:
            if error.code == "not-found":
                return None
            raise

    def _headers(self) -> dict[str, str]:
        return {"accept": "application/json", **self._connection.authorization()}

    def _unreachable(self, error: Exception) -> SandboxError:
        server = self._connection.engine.credentials.server
        return SandboxError("unavailable", f"cannot reach the API server at {server}: {error or type(error).__name__}")


def _transport_error() -> type[httpx.TransportError]:
    import httpx

    return httpx.TransportError


def _parse(content: bytes, what: str) -> KubeObject:
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise SandboxError("protocol-error", f"{what}: the answer is not JSON") from error
    if not isinstance(parsed, dict):
        raise SandboxError("protocol-error", f"{what}: the answer is not an object")
    return parsed


def failure_of(what: str, status: int, content: bytes, headers: Mapping[str, str]) -> SandboxError:
    """The error that a refused request tells of."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        return _status_error(what, body, status, headers.get("audit-id"))
    text = content.decode("utf-8", "replace").strip()[:500]
    return SandboxError(code_of_status(status), f"{what}: the API server answered {status}: {text}")


def _status_error(what: str, body: KubeObject, status: int, request_id: str | None = None) -> SandboxError:
    code = code_of_reason(body.get("reason")) or code_of_status(status)
    return SandboxError(code, body.get("message") or f"{what}: the API server answered {status}", request_id=request_id)
