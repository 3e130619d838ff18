import { isBuiltin } from "node:module";
import path from "node:path";
import type { Plugin } from "esbuild";
import { rootDir } from "../checkout.ts";

const namespace = "named-imports";

/**
 * Gives `await import("yaml")` the names that Node gives it. A package written for CommonJS becomes a file with a default export alone where
 * code is split, so that `{ stringify }` of it would be undefined. Node's own list of names is put in front of it.
 */
export const namedImports: Plugin = {
  name: namespace,
  setup: (build) => {
    build.onResolve({ filter: /^[^./]/ }, ({ path: name, kind, resolveDir }) => {
      if (kind !== "dynamic-import" || isBuiltin(name) || name.startsWith("@agent-sandbox/")) return undefined;
      return { path: name, namespace, pluginData: resolveDir };
    });
    build.onLoad({ filter: /.*/, namespace }, async ({ path: name, pluginData }) => {
      const names = Object.keys((await import(name)) as object).filter((word) => /^[A-Za-z_$][\w$]*$/.test(word));
      const own = names.filter((word) => word !== "default" && word !== "module.exports");
      const lines = own.map((word) => `export const ${word} = all.${word};`);
      return {
        contents: [`import * as all from ${JSON.stringify(name)};`, ...lines].join("\n"),
        resolveDir: typeof pluginData === "string" ? pluginData : path.join(rootDir, "packages"),
      };
    });
  },
};
