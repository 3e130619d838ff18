/** Variables that Node, the C library, the privileged helper's tools, or our own code read. */
const names = new Set(["PATH", "HOME", "LANG", "TZ", "TMPDIR", "NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY"]);
const prefixes = ["NODE_", "AGENT_SANDBOX_", "KUBERNETES_SERVICE_", "LC_", "SSL_CERT_"];

/**
 * What a child gets of the environment that the engine was started in. Root's own may hold keys of whatever root works with, which a
 * process that parses what strangers send has no use for.
 */
export function childEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const isPassed = (name: string): boolean =>
    names.has(name.toUpperCase()) || prefixes.some((prefix) => name.startsWith(prefix));
  return Object.fromEntries(Object.entries(env).filter(([name]) => isPassed(name)));
}
