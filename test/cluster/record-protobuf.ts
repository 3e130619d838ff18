// Writes spec/builtin/protobuf.json: the field numbers of Kubernetes' own kinds, read from the Go modules of the test cluster.
//
//   node test/cluster/record-protobuf.ts
import { execFileSync } from "node:child_process";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** Number to [JSON name, type, how often, whether Go has a pointer]. */
type Fields = Record<string, [name: string, type: string, label: "one" | "many" | "map", isPointer: boolean]>;

const packages = [
  "api/core/v1",
  "api/authentication/v1",
  "api/authorization/v1",
  "api/autoscaling/v1",
  "api/coordination/v1",
  "api/discovery/v1",
  "api/events/v1",
  "api/networking/v1",
  "api/node/v1",
  "api/policy/v1",
  "api/rbac/v1",
  "api/scheduling/v1",
  "api/storage/v1",
  "apimachinery/pkg/apis/meta/v1",
  "apimachinery/pkg/runtime",
];

const scalars = new Set(["string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double", "float"]);
const messages: Record<string, Fields> = {};
for (const name of packages) readPackage(name);
const target = path.resolve(import.meta.dirname, "../../spec/builtin/protobuf.json");
writeFileSync(target, `${JSON.stringify(reachable())}\n`);
process.stdout.write(`${Object.keys(reachable()).length} messages\n`);

function moduleDir(module: string): string {
  const args = ["list", "-m", "-f", "{{.Dir}}", `k8s.io/${module}`];
  return execFileSync("go", args, { cwd: import.meta.dirname, encoding: "utf8" }).trim();
}

function readPackage(name: string): void {
  const [module = "", ...rest] = name.split("/");
  const dir = path.join(moduleDir(module), ...rest);
  const pointers = pointersOf(dir);
  const full = `k8s.io.${name.replaceAll("/", ".")}`;
  const proto = readFileSync(path.join(dir, "generated.proto"), "utf8");
  for (const [, message = "", body = ""] of proto.matchAll(/^message (\w+) \{\n([\s\S]*?)^\}/gm)) {
    const fields: Fields = {};
    for (const line of body.split("\n")) {
      const field = /^ {2}(?:(optional|repeated) ([\w.]+)|map<([\w., ]+)>) (\w+) = (\d+);/.exec(line);
      if (field === null) continue;
      const [, label, type = "", map, json = "", number = ""] = field;
      const resolve = (text: string): string => resolveType(text, full);
      const isPointer = pointers.has(`${message}.${json}`);
      fields[number] =
        map === undefined
          ? [json, resolve(type), label === "repeated" ? "many" : "one", isPointer]
          : [
              json,
              map
                .split(",")
                .map((text) => resolve(text.trim()))
                .join(","),
              "map",
              isPointer,
            ];
    }
    messages[`${full}.${message}`] = fields;
  }
}

function resolveType(text: string, from: string): string {
  if (scalars.has(text)) return text;
  const plain = text.replace(/^\./, "");
  return plain.includes(".") ? plain : `${from}.${plain}`;
}

/** Which fields Go keeps behind a pointer: a zero in them was meant. */
function pointersOf(dir: string): Set<string> {
  const found = new Set<string>();
  for (const file of globSync(path.join(dir, "*types*.go"))) {
    const text = readFileSync(file, "utf8");
    for (const [, struct = "", body = ""] of text.matchAll(/^type (\w+) struct \{\n([\s\S]*?)^\}/gm)) {
      for (const [, json = ""] of body.matchAll(/^\s+\w+\s+\*\S+\s+`.*?json:"(\w+)/gm)) found.add(`${struct}.${json}`);
    }
  }
  return found;
}

/** Lists are answered, never sent; leaving them out keeps the file small. */
function reachable(): Record<string, Fields> {
  return Object.fromEntries(
    Object.entries(messages).filter(([name]) => !name.endsWith("List") || name.endsWith("APIResourceList")),
  );
}
