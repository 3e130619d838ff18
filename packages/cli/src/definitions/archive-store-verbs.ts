import type { VerbDefinition } from "../verb-definition.ts";
import { engineDataDirFlag } from "./flags.ts";

/** Which store an archive is in. */
export const archiveFlags = [
  { flag: "--archive <place>", text: "where archived sandboxes go: a directory, or s3://BUCKET/PREFIX" },
  { flag: "--archive-endpoint <url>", text: "the S3 service of the archive; https, or http on this machine" },
  { flag: "--archive-credentials <file>", text: "its access key as AWS writes it; a file of root's" },
];

/** Verbs about the store of an archive and its keys; they need no engine. */
export const archiveStoreVerbs: readonly VerbDefinition[] = [
  {
    name: "ls",
    summary: "list what the archive's own index has, without the engine",
    flags: [
      engineDataDirFlag,
      ...archiveFlags,
      { flag: "-o, --output <format>", text: "output format", choices: ["json"] },
    ],
    load: async () => (await import("../verbs/archive.ts")).archiveLsVerb,
  },
  {
    name: "key",
    summary:
      "export, import or rotate the keys, or remove those that no archive needs; without its key an archive cannot be read",
    args: "<export|import|rotate|retire> [file]",
    flags: [engineDataDirFlag, ...archiveFlags],
    examples: ["agent-sandbox archive key export ./archive.key", "agent-sandbox archive key rotate"],
    load: async () => (await import("../verbs/archive.ts")).archiveKeyVerb,
  },
];
