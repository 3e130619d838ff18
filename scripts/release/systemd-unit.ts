import { readFileSync } from "node:fs";
import path from "node:path";
import { rootDir } from "../checkout.ts";
import { layout } from "./layout.ts";

/** What differs between the unit of a checkout and that of an installation. */
export interface UnitPlaces {
  /** The comment at its top. */
  readonly comment: string;
  readonly documentation: string;
  readonly command: string;
  /** The file with `AGENT_SANDBOX_OPTIONS`, where there is one. */
  readonly defaultsFile?: string;
}

/** The unit of deploy/systemd for other places. Each change must find its text: a unit that names a wrong place starts nothing. */
export function systemdUnit({ comment, documentation, command, defaultsFile }: UnitPlaces): string {
  const environment = defaultsFile === undefined ? "" : `EnvironmentFile=-${defaultsFile}\n`;
  const options = defaultsFile === undefined ? "" : " $AGENT_SANDBOX_OPTIONS";
  const changes: readonly [RegExp, (found: string, flags: string) => string][] = [
    [/^#.*\n#.*\n(?=\[Unit\])/, () => comment],
    [/^Documentation=.*$/m, () => `Documentation=${documentation}`],
    [/^ExecStart=\S+ (.*)$/m, (_, flags) => `${environment}ExecStart=${command} ${flags}${options}`],
    // A release has nothing to build at its first start.
    [/^# The first start builds the runtime\.\nTimeoutStartSec=.*\n/m, () => ""],
  ];
  let unit = readFileSync(path.join(rootDir, "deploy/systemd/agent-sandbox.service"), "utf8");
  for (const [pattern, replace] of changes) {
    if (!pattern.test(unit)) throw new Error(`deploy/systemd/agent-sandbox.service has nothing like ${pattern.source}`);
    unit = unit.replace(pattern, replace);
  }
  return unit;
}

/** The unit of a tarball, which may be unpacked anywhere, for the usual place. It goes by the link, so that a reboot starts what `upgrade` installed. */
export function tarballUnit(): string {
  return systemdUnit({
    comment: `# The one-machine engine as a service. The link /opt/agent-sandbox/current is expected to lead to an unpacked release.
#   cp /opt/agent-sandbox/current/${layout.deploy}/systemd/agent-sandbox.service /etc/systemd/system/ && systemctl enable --now agent-sandbox
`,
    documentation: "file:/opt/agent-sandbox/current/share/doc/README.md",
    command: `/opt/agent-sandbox/current/${layout.launcher}`,
  });
}
