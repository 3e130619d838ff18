import { expect, test } from "vitest";
import { findForbiddenArrows, findUnusedArrows } from "./arrows.ts";
import { apiserverFolder, apiserverLayers } from "./layers.ts";

const forbidden: readonly (readonly [string, string])[] = [
  ["packages/api/src/a.ts", `import { Client } from "@agent-sandbox/kube";`],
  ["packages/server/src/controllers/sandbox/plan.ts", `import { SqliteStore } from "../../store/sqlite-store.ts";`],
  ["packages/server/src/node/agent.ts", `import { ApiServer } from "../apiserver/api-server.ts";`],
  ["packages/server/src/node/host/host.ts", `import { planPod } from "../pods/plan.ts";`],
  ["packages/server/src/router/router.ts", `export { Sandbox } from "@agent-sandbox/sdk";`],
  [
    "packages/server/src/apiserver/auth/security.ts",
    `import { defaultAdmission } from "../admission/default-admission.ts";`,
  ],
  ["packages/server/src/apiserver/request/scope.ts", `import type { ServerParts } from "../scope/server-parts.ts";`],
  ["packages/server/src/apiserver/verbs/create.ts", `import { ApiServer } from "../api-server.ts";`],
  ["packages/server/src/apiserver/json/json.ts", `import type { Row } from "../../store/store.ts";`],
  ["packages/server/src/apiserver/new-folder/file.ts", ""],
  ["packages/cli/src/run.ts", `const up = await import("@agent-sandbox/server/store/store.ts");`],
];

test.each(forbidden)("findForbiddenArrows: refuses what %s imports", (file, text) => {
  expect(findForbiddenArrows(file, text)).toHaveLength(1);
});

const allowed: readonly (readonly [string, string])[] = [
  ["packages/kube/src/client.ts", `import type { Pod } from "@agent-sandbox/api";`],
  ["packages/server/src/node/agent.ts", `import type { Host } from "./host/host.ts";`],
  ["packages/server/src/main/up.ts", `import { ApiServer } from "../apiserver/api-server.ts";`],
  ["packages/server/src/apiserver/api-server.ts", `import { openListener } from "./http/http-listener.ts";`],
  ["packages/server/src/apiserver/admission/admission.ts", `import { Authorizer } from "../auth/authorizer.ts";`],
  ["packages/server/src/router/router.ts", `import { createLogger } from "../telemetry/logger.ts";`],
  ["packages/cli/src/up.ts", `import { up } from "@agent-sandbox/server/main/up.ts";`],
  ["packages/server/src/store/store.test.ts", `import { x } from "../apiserver/x.ts";`],
];

test.each(allowed)("findForbiddenArrows: allows what %s imports", (file, text) => {
  expect(findForbiddenArrows(file, text)).toEqual([]);
});

test("apiserverLayers: every arrow points down", () => {
  const rows = apiserverLayers.flatMap(({ folders }) => Object.entries(folders));
  const order = rows.map(([name]) => name);
  const rising = rows.flatMap(([name, targets]) =>
    targets.filter((target) => order.indexOf(target) >= order.indexOf(name)).map((target) => `${name} → ${target}`),
  );
  expect(rising).toEqual([]);
});

test("findUnusedArrows: names an arrow that no import follows", () => {
  const unused = findUnusedArrows([`${apiserverFolder}/cel/a.ts`], () => `import { b } from "../schema/b.ts";`);
  expect(unused).toContain(`${apiserverFolder}/apply → ${apiserverFolder}/schema`);
  expect(unused).not.toContain(`${apiserverFolder}/cel → ${apiserverFolder}/schema`);
});
