import { expect, test } from "vitest";
import { findForbiddenArrows } from "./arrows.ts";

const forbidden: readonly (readonly [string, string])[] = [
  ["packages/api/src/a.ts", `import { Client } from "@agent-sandbox/kube";`],
  ["packages/server/src/controllers/sandbox/plan.ts", `import { SqliteStore } from "../../store/sqlite-store.ts";`],
  ["packages/server/src/node/agent.ts", `import { ApiServer } from "../apiserver/api-server.ts";`],
  ["packages/server/src/node/host/host.ts", `import { planPod } from "../pods/plan.ts";`],
  ["packages/server/src/router/router.ts", `export { Sandbox } from "@agent-sandbox/sdk";`],
  ["packages/cli/src/run.ts", `const up = await import("@agent-sandbox/server/store/store.ts");`],
];

test.each(forbidden)("findForbiddenArrows: refuses what %s imports", (file, text) => {
  expect(findForbiddenArrows(file, text)).toHaveLength(1);
});

const allowed: readonly (readonly [string, string])[] = [
  ["packages/kube/src/client.ts", `import type { Pod } from "@agent-sandbox/api";`],
  ["packages/server/src/node/agent.ts", `import type { Host } from "./host/host.ts";`],
  ["packages/server/src/main/up.ts", `import { ApiServer } from "../apiserver/api-server.ts";`],
  ["packages/server/src/router/router.ts", `import { createLogger } from "../telemetry/logger.ts";`],
  ["packages/cli/src/up.ts", `import { up } from "@agent-sandbox/server/main/up.ts";`],
  ["packages/server/src/store/store.test.ts", `import { x } from "../apiserver/x.ts";`],
];

test.each(allowed)("findForbiddenArrows: allows what %s imports", (file, text) => {
  expect(findForbiddenArrows(file, text)).toEqual([]);
});
