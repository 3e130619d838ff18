import type { ContainerProcess } from "../host/container.ts";

/** Does nothing: it holds a sandbox for the containers that join it. */
export const pauseProcess: ContainerProcess = {
  argv: ["/usr/bin/sleep", "infinity"],
  env: ["PATH=/usr/bin:/bin"],
  cwd: "/",
  uid: 65_534,
  gid: 65_534,
  capabilities: [],
  noNewPrivileges: true,
};
