import { readdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import type { KubeObject } from "@agent-sandbox/api/meta";
import { usageError } from "../cli-error.ts";
import type { Context } from "../context.ts";
import { nameAlias } from "./aliases.ts";
import type { Manifest } from "./manifest.ts";

/** Reads objects out of files, directories and standard input. */
export async function readManifests(context: Context, files: readonly string[]): Promise<Manifest[]> {
  const manifests: Manifest[] = [];
  for (const file of files) {
    for (const { source, text } of await readTexts(context, file))
      manifests.push(...(await parseManifests(source, text)));
  }
  return manifests.map(nameAlias);
}

async function readTexts(context: Context, file: string): Promise<{ source: string; text: string }[]> {
  if (file === "-") {
    const chunks: Buffer[] = [];
    for await (const chunk of context.stdin) chunks.push(Buffer.from(chunk as Buffer));
    return [{ source: "standard input", text: Buffer.concat(chunks).toString("utf8") }];
  }
  try {
    if (!(await stat(file)).isDirectory()) return [{ source: file, text: await readFile(file, "utf8") }];
    const names = (await readdir(file)).filter((name) => /\.(ya?ml|json)$/.test(name)).sort();
    return await Promise.all(
      names.map(async (name) => ({
        source: path.join(file, name),
        text: await readFile(path.join(file, name), "utf8"),
      })),
    );
  } catch (cause) {
    throw usageError(`cannot read ${file}: ${(cause as Error).message}`);
  }
}

/** Parses YAML or JSON with any number of documents; a `List` counts as its items. Exported for tests. */
export async function parseManifests(source: string, text: string): Promise<Manifest[]> {
  const { parseAllDocuments } = await import("yaml");
  const documents = parseAllDocuments(text);
  const several = documents.length > 1;
  return documents.flatMap((document, index) => {
    const where = several ? `${source}, document ${index + 1}` : source;
    const [error] = document.errors;
    if (error !== undefined) throw usageError(`${where}: ${error.message.split("\n")[0]}`);
    const value = document.toJS() as (KubeObject & { items?: KubeObject[] }) | null;
    if (value === null) return [];
    if (typeof value !== "object" || typeof value.kind !== "string" || typeof value.apiVersion !== "string") {
      throw usageError(`${where}: not an object with apiVersion and kind`);
    }
    const objects = value.kind === "List" ? (value.items ?? []) : [value];
    // A document need not have a name yet; an empty one is easier to carry than none.
    return objects.map((object) => ({
      source: where,
      object: { ...object, metadata: { name: "", ...(object.metadata as Partial<KubeObject["metadata"]>) } },
    }));
  });
}
