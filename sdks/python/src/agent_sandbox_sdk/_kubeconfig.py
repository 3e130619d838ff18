"""Credentials of a Kubernetes API, read from a kubeconfig or from the Pod this runs in."""

from __future__ import annotations

import base64
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_sandbox_sdk.errors import SandboxError

_SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Credentials:
    """How to reach and convince an API server."""

    server: str
    namespace: str = "default"
    ca_pem: str | None = None
    insecure: bool = False
    cert_pem: str | None = None
    key_pem: str | None = None
    token: str | None = None
    token_file: str | None = None
    """Read for every request: tokens of a Pod are replaced while it runs."""

    def bearer(self) -> str | None:
        """The token to send, if there is one."""
        return Path(self.token_file).read_text().strip() if self.token_file else self.token

    def ssl_context(self) -> ssl.SSLContext:
        """A context that trusts the cluster's own authority, or the system's where none is named."""
        if self.insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_pem is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=self.ca_pem)
        else:
            context = ssl.create_default_context()
        if self.cert_pem is not None and self.key_pem is not None:
            _load_certificate(context, self.cert_pem, self.key_pem)
        return context


def _load_certificate(context: ssl.SSLContext, cert_pem: str, key_pem: str) -> None:
    import tempfile

    # The ssl module takes certificates from files only; the file is private and gone at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{cert_pem}\n{key_pem}\n")
        file.flush()
        context.load_cert_chain(file.name)


def load_kubeconfig(path: str | os.PathLike[str], context: str | None = None) -> Credentials:
    """Reads one context of a kubeconfig; raises `engine-not-found` for a file or context that is not there."""
    # Reading a configuration is the only use of YAML; who has none does not pay for its import.
    import yaml

    file = Path(path)
    try:
        config = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SandboxError("engine-not-found", f"cannot read kubeconfig {file}: {error}") from error
    if not isinstance(config, dict):
        raise SandboxError("engine-not-found", f"kubeconfig {file} is not a mapping")
    name = context or config.get("current-context") or ""
    chosen = _named(config, "contexts", "context", name, file)
    cluster = _named(config, "clusters", "cluster", str(chosen.get("cluster", "")), file)
    user = _named(config, "users", "user", str(chosen["user"]), file) if chosen.get("user") else {}
    if "exec" in user:
        user = {**user, **_run_exec_plugin(user["exec"])}
    return Credentials(
        server=str(cluster.get("server", "")).rstrip("/"),
        namespace=chosen.get("namespace") or "default",
        ca_pem=_pem(cluster, "certificate-authority", file),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        cert_pem=_pem(user, "client-certificate", file),
        key_pem=_pem(user, "client-key", file),
        token=user.get("token"),
        token_file=user.get("tokenFile"),
    )


def _named(config: dict[str, Any], section: str, field: str, name: str, file: Path) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            return dict(entry.get(field) or {})
    raise SandboxError("engine-not-found", f"kubeconfig {file} has no {field} '{name}'")


def _pem(source: dict[str, Any], key: str, file: Path) -> str | None:
    data = source.get(f"{key}-data")
    if data:
        return base64.b64decode(data).decode()
    path = source.get(key)
    return (file.parent / path).read_text() if path else None


def _run_exec_plugin(spec: dict[str, Any]) -> dict[str, Any]:
    """Asks a credential plugin, as client-go does."""
    import subprocess

    api_version = spec.get("apiVersion", "client.authentication.k8s.io/v1")
    info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    env.update({entry["name"]: entry["value"] for entry in spec.get("env") or []})
    argv = [spec["command"], *(spec.get("args") or [])]
    try:
        done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=60)
        status = json.loads(done.stdout)["status"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        message = f"credential plugin '{spec['command']}' failed: {error}"
        raise SandboxError("unauthenticated", message) from error
    found: dict[str, Any] = {"token": status.get("token")}
    for key, wire in (("client-certificate-data", "clientCertificateData"), ("client-key-data", "clientKeyData")):
        if status.get(wire):
            found[key] = base64.b64encode(status[wire].encode()).decode()
    return found


def in_cluster_credentials() -> Credentials | None:
    """The credentials of the Pod this runs in, or None outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token_file = _SERVICE_ACCOUNT_DIR / "token"
    if not host or not port or not token_file.exists():
        return None
    namespace_file = _SERVICE_ACCOUNT_DIR / "namespace"
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        ca_pem=(_SERVICE_ACCOUNT_DIR / "ca.crt").read_text(),
        token_file=str(token_file),
    )
