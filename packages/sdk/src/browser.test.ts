import path from "node:path";
import { build } from "esbuild";
import { expect, test } from "vitest";

test("browser entry: bundles without anything of Node", async () => {
  const { outputFiles, metafile } = await build({
    entryPoints: [path.join(import.meta.dirname, "browser.ts")],
    bundle: true,
    platform: "browser",
    format: "esm",
    write: false,
    metafile: true,
    logLevel: "silent",
  });
  expect(outputFiles[0]?.text).not.toContain("node:");
  expect(Object.keys(metafile.inputs).some((file) => file.includes("packages/kube"))).toBe(false);
});
