import { expect, test } from "vitest";
import { controllerUsage } from "../controllers/process/flags.ts";
import { goFlagsUsage, wantsHelp } from "../controllers/process/go-flags.ts";
import { nodeUsage } from "./node-flags.ts";
import { routerUsage } from "./router-flags.ts";

test.each([
  [
    "controller",
    controllerUsage(),
    "  --metrics-bind-address string\n        Where metrics are served. (default :8080)\n",
  ],
  ["router", routerUsage({ CLUSTER_DOMAIN: "example.org" }), "(default example.org)\n"],
  [
    "node",
    nodeUsage(),
    "  --minimum-image-ttl-duration duration\n        How long an image stays after its last use. (default 120s)\n",
  ],
])("%s --help: every flag with its default", (role, text, line) => {
  expect(text).toMatch(new RegExp(`^Usage: agent-sandbox ${role} \\[flags\\]\n\n`));
  expect(text).toContain(line);
});

test("goFlagsUsage: neither an empty text nor false is shown as a default", () => {
  const table = {
    quiet: { kind: "bool", fallback: false, help: "Say less." },
    file: { kind: "string", fallback: "", help: "Read this." },
    pause: { kind: "duration", fallback: 1500, help: "Wait." },
  } as const;
  expect(goFlagsUsage("x", "Does x.", table)).toBe(
    "Usage: x [flags]\n\nDoes x.\n\n  --quiet\n        Say less.\n  --file string\n        Read this.\n  --pause duration\n        Wait. (default 1500ms)\n",
  );
});

test("wantsHelp: in Go's spellings, and not behind --", () => {
  expect([["-h"], ["--help"], ["-help"], ["--port", "1", "-h"]].map(wantsHelp)).toEqual([true, true, true, true]);
  expect([[], ["--", "--help"], ["--helper"]].map(wantsHelp)).toEqual([false, false, false]);
});
