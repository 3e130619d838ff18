import { defineConfig } from "vitest/config";

/** Suites that start real sandboxes or touch namespaces, cgroups or mounts: they need root and run one at a time. */
const rootSuites = "test/**/*.root.test.ts";

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: "unit",
          include: ["packages/*/src/**/*.test.ts", "scripts/**/*.test.ts", "test/**/*.test.ts"],
          exclude: [rootSuites, "test/cluster/**", "**/node_modules/**"],
          testTimeout: 20_000,
        },
      },
      {
        test: {
          name: "root",
          include: [rootSuites],
          exclude: ["test/cluster/**", "**/node_modules/**"],
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: "cluster",
          include: ["test/cluster/**/*.test.ts"],
          exclude: ["**/node_modules/**"],
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 180_000,
        },
      },
    ],
  },
});
