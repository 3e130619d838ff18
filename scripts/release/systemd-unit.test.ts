import { expect, test } from "vitest";
import { systemdUnit, tarballUnit } from "./systemd-unit.ts";

test("systemdUnit: names the installation's command and file of options, and nothing of a checkout", () => {
  const unit = systemdUnit({
    comment: "# A service.\n",
    documentation: "man:agent-sandbox(1)",
    command: "/usr/bin/agent-sandbox",
    defaultsFile: "/etc/default/agent-sandbox",
  });
  expect(unit).toMatch(/^# A service\.\n\[Unit\]\n/);
  expect(unit).toContain(
    "EnvironmentFile=-/etc/default/agent-sandbox\nExecStart=/usr/bin/agent-sandbox up --data-dir /var/lib/agent-sandbox $AGENT_SANDBOX_OPTIONS\n",
  );
  expect(unit).not.toMatch(/\/opt\/|TimeoutStartSec|builds the runtime/);
  // The engine's own care for what it started stays.
  expect(unit).toMatch(/^KillMode=process$/m);
});

test("systemdUnit: without a file of options none is read", () => {
  const unit = systemdUnit({ comment: "", documentation: "file:/a", command: "/opt/b" });
  expect(unit).not.toContain("EnvironmentFile");
  expect(unit).toContain("ExecStart=/opt/b up --data-dir /var/lib/agent-sandbox\n");
});

test("systemdUnit: a tarball's service goes by the link that upgrade moves", () => {
  const unit = tarballUnit();
  expect(unit).toContain(
    "ExecStart=/opt/agent-sandbox/current/bin/agent-sandbox up --data-dir /var/lib/agent-sandbox\n",
  );
  const others = unit.split("\n").filter((line) => /\/opt\/agent-sandbox\/(?!current\b)/.test(line));
  expect(others).toEqual([]);
});
