import { Gauge } from "prom-client";
import type { MetricsRegistry } from "../../telemetry/metrics.ts";

/** Which program this is; what is not known reads `unknown`. */
export interface BuildInfo {
  readonly version: string;
  readonly commit?: string;
  readonly builtAt?: string;
}

/** Registers `agent_sandbox_build_info`; the runtime stands where dashboards expect Go's compiler. */
export function setBuildInfo(
  registry: MetricsRegistry,
  { version, commit = "unknown", builtAt = "unknown" }: BuildInfo,
): void {
  const labels = {
    git_version: version,
    git_commit: commit,
    build_date: builtAt,
    go_version: `node-${process.versions.node}`,
    compiler: "v8",
    platform: `${process.platform}/${process.arch}`,
  };
  const gauge = new Gauge({
    name: "agent_sandbox_build_info",
    help: "Constant 1, labelled by what this program is.",
    labelNames: Object.keys(labels),
    registers: [registry],
  });
  gauge.set(labels, 1);
}

/** What `--version` prints. */
export function versionText({ version, commit = "unknown", builtAt = "unknown" }: BuildInfo): string {
  return [
    `agent-sandbox-controller, version ${version} (revision: ${commit})`,
    `  build date:       ${builtAt}`,
    `  go version:       node-${process.versions.node}`,
    `  compiler:         v8`,
    `  platform:         ${process.platform}/${process.arch}`,
  ].join("\n");
}
