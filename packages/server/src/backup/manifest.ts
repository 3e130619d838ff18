import { z } from "zod";
import { BackupError } from "./backup-error.ts";

/** Raised with every change that an older version could not restore. */
const formatVersion = 1;

/** The first file of a backup. */
export const manifestName = "manifest.json";

/** What can be left out of a backup. */
export const optionalParts = ["volumes", "layers", "images"] as const;

/** One of them. */
export type OptionalPart = (typeof optionalParts)[number];

const manifestShape = z.object({
  format: z.number().int().positive(),
  engineVersion: z.string(),
  nodeName: z.string(),
  createdAt: z.string(),
  includes: z.array(z.string()),
  /** What was there when the backup began; the trailer has what came to be in it. */
  parts: z.array(z.string()),
});

/** What a backup says about itself. */
export type Manifest = z.infer<typeof manifestShape>;

/** The manifest's text. */
export function manifestText(manifest: Omit<Manifest, "format">): string {
  return `${JSON.stringify({ format: formatVersion, ...manifest }, null, 2)}\n`;
}

/** Reads a manifest; throws `unsupported` for one of a later format. */
export function parseManifest(text: string): Manifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw notOurs(cause);
  }
  // A later format may have another shape: its number is looked at first.
  const { format } = z.object({ format: z.number() }).catch({ format: 0 }).parse(value);
  if (format > formatVersion)
    throw new BackupError(
      "unsupported",
      `the backup has format ${format}, and this version of agent-sandbox reads up to ${formatVersion}; restore it with the version that wrote it, or a later one`,
    );
  const parsed = manifestShape.safeParse(value);
  if (!parsed.success) throw notOurs(parsed.error);
  return parsed.data;
}

function notOurs(cause: unknown): BackupError {
  return new BackupError("not-a-backup", "this is no backup of agent-sandbox", { cause });
}

/** Whose a restored file is. */
export type PartOwner = "root" | "control" | "router" | "node";

const id = "[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?";

/** Every name a part may have: its place below the data directory, and who owns what is there. A backup puts files nowhere else. */
const places: readonly (readonly [RegExp, PartOwner])[] = [
  [/^(node|network|registries|docker-config)\.json$/, "root"],
  [new RegExp(`^host/volumes/${id}\\.img$`), "root"],
  [new RegExp(`^host/writable/kept/${id}\\.img$`), "root"],
  [/^host\/archive\/keys\.json$/, "root"],
  [/^engine\/control\/db\/store\.sqlite$/, "control"],
  [/^engine\/control\/pki\/[a-z0-9][a-z0-9.-]{0,60}$/, "control"],
  [/^engine\/router\/links\.key$/, "router"],
  [/^engine\/node\/images\/index\.json$/, "node"],
  [/^engine\/node\/images\/blobs\/sha256\/[0-9a-f]{64}$/, "node"],
];

/** Who owns a part's file; undefined for a name that no part has. */
export function ownerOf(name: string): PartOwner | undefined {
  return places.find(([pattern]) => pattern.test(name))?.[1];
}

/** The keys of archives, which their stores are unreadable without. */
export const archiveKeysPart = "host/archive/keys.json";

/** The database's name in a backup. */
export const databasePart = "engine/control/db/store.sqlite";
