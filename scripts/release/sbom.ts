import { createHash } from "node:crypto";
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Architecture, debianArchitectures, nativeProgramNames, releaseName } from "./layout.ts";
import { inspectProgram, readParts, sha256Of } from "./natives.ts";
import { pinnedNode, type ReleaseInput } from "./tree.ts";

/** A part of a release, in the words of CycloneDX. */
interface Component {
  readonly type: "application" | "library";
  readonly "bom-ref": string;
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly { readonly expression: string }[];
  readonly hashes?: readonly { readonly alg: "SHA-256"; readonly content: string }[];
}

/** A part and those that are in it. */
interface Assembled {
  readonly component: Component;
  readonly contains: readonly Component[];
}

/** Writes the bill of materials of an architecture, in CycloneDX 1.6: everything that a tarball has and did not come from this repository. */
export function writeSbom(outDir: string, input: ReleaseInput, epoch: number): void {
  const { version, arch } = input;
  const assembled = [compiledApp(input), nodeRuntime(arch), ...nativePrograms(version, arch), ...carriedTools(arch)];
  const components = new Map(
    assembled.flatMap(({ component, contains }) => [component, ...contains]).map((one) => [one["bom-ref"], one]),
  );
  const release = component("application", {
    name: "agent-sandbox",
    version,
    purl: `pkg:generic/agent-sandbox@${version}?arch=${arch}`,
  });
  const links = assembled.map((one) => ({ ref: one.component["bom-ref"], dependsOn: refs(one.contains) }));
  const body = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { timestamp: new Date(epoch * 1000).toISOString(), component: release },
    components: [...components.values()].sort((a, b) => (a["bom-ref"] < b["bom-ref"] ? -1 : 1)),
    dependencies: [{ ref: release["bom-ref"], dependsOn: refs(assembled.map((one) => one.component)) }, ...links],
  };
  // A number of its own, and the same for the same contents.
  const serialNumber = `urn:uuid:${uuidOf(JSON.stringify(body))}`;
  const file = path.join(outDir, `${releaseName(version, arch)}.cdx.json`);
  writeFileSync(file, `${JSON.stringify({ ...body, serialNumber }, undefined, 1)}\n`);
}

function refs(components: readonly Component[]): string[] {
  return [...new Set(components.map((one) => one["bom-ref"]))].sort();
}

function component(
  type: Component["type"],
  facts: Omit<Component, "type" | "bom-ref"> & { readonly purl: string },
): Component {
  return { type, "bom-ref": facts.purl, ...facts };
}

function compiledApp({ version, compiled }: ReleaseInput): Assembled {
  const contains = compiled.packages.map(({ name, version: own, license }) =>
    component("library", {
      name,
      version: own,
      purl: `pkg:npm/${name.replace("@", "%40")}@${own}`,
      licenses: [{ expression: license }],
    }),
  );
  const purl = `pkg:generic/agent-sandbox-app@${version}`;
  return { component: component("application", { name: "lib/app", version, purl }), contains };
}

/** Node says itself which libraries it is linked with; both architectures are of one version. */
function nodeRuntime(arch: Architecture): Assembled {
  const version = pinnedNode();
  if (process.version !== `v${version}`) throw new Error(`this is Node ${process.version}, and ${version} is released`);
  const libraries = Object.entries(process.versions).filter(
    ([name]) => name !== "node" && name !== "modules" && name !== "napi",
  );
  const contains = libraries.map(([name, own = ""]) =>
    component("library", { name, version: own, purl: `pkg:generic/${name}@${encodeURIComponent(own)}` }),
  );
  const hashes = [{ alg: "SHA-256", content: sha256Of(readParts(arch).node) }] as const;
  const purl = `pkg:npm/node-linux-${arch}@${version}`;
  return { component: component("application", { name: "node", version, purl, hashes }), contains };
}

/** What Go wrote into each program. */
function nativePrograms(version: string, arch: Architecture): Assembled[] {
  const parts = readParts(arch);
  return nativeProgramNames.map((name) => {
    const { go, modules } = inspectProgram(parts[name]);
    const own = name === "runsc" ? parts.runscVersion : version;
    const library = component("library", {
      name: "stdlib",
      version: go,
      purl: `pkg:golang/stdlib@${go.slice("go".length)}`,
    });
    const contains = modules.map((one) =>
      component("library", { ...one, purl: `pkg:golang/${one.name}@${one.version}` }),
    );
    const hashes = [{ alg: "SHA-256", content: sha256Of(parts[name]) }] as const;
    const purl = `pkg:generic/${name}@${own}?arch=${arch}`;
    return {
      component: component("application", { name, version: own, purl, hashes }),
      contains: [library, ...contains],
    };
  });
}

/** A Debian package file that programs and libraries are carried from: `nftables_1.0.6-2_amd64.deb`. */
function carriedTools(arch: Architecture): Assembled[] {
  return carriedDebs(arch).map(({ name, version, file }) => {
    const purl = `pkg:deb/debian/${name}@${version}?arch=${debianArchitectures[arch]}`;
    const hashes = [{ alg: "SHA-256", content: sha256Of(file) }] as const;
    return { component: component("library", { name, version, purl, hashes }), contains: [] };
  });
}

/** The Debian packages that a tarball carries parts of. */
export function carriedDebs(
  arch: Architecture,
): { readonly name: string; readonly version: string; readonly file: string }[] {
  const dir = path.join(readParts(arch).tools, "debs");
  return readdirSync(dir)
    .sort()
    .map((base) => {
      const [name = "", version = ""] = base.split("_");
      return { name, version: decodeURIComponent(version), file: path.join(dir, base) };
    });
}

function uuidOf(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    "-",
  );
}
