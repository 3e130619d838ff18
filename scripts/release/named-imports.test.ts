import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { expect, test } from "vitest";
import { rootDir } from "../checkout.ts";
import { namedImports } from "./named-imports.ts";

test("named imports: a compiled dynamic import of a CommonJS package has its names", async () => {
  const dir = mkdtempSync(path.join(rootDir, "node_modules/.named-imports-"));
  try {
    writeFileSync(
      path.join(dir, "main.ts"),
      'export const text = async () => (await import("yaml")).stringify({ a: 1 });\n',
    );
    await build({
      entryPoints: [path.join(dir, "main.ts")],
      outdir: path.join(dir, "out"),
      outExtension: { ".js": ".mjs" },
      bundle: true,
      splitting: true,
      platform: "node",
      format: "esm",
      banner: { js: 'import{createRequire as r}from"node:module";const require=r(import.meta.url);' },
      plugins: [namedImports],
    });
    const url = pathToFileURL(path.join(dir, "out/main.mjs")).href;
    const { text } = (await import(/* @vite-ignore */ url)) as { text: () => Promise<string> };
    expect(await text()).toBe("a: 1\n");
  } finally {
    rmSync(dir, { recursive: true });
  }
});
