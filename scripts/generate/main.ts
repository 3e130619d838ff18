import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chartTemplates } from "./chart.ts";
import { printClusterRoles } from "./cluster-roles.ts";
import { printCrd, readCrdSources, resolveCrds } from "./crds.ts";
import {
  printApiReasons,
  printGoCodes,
  printPythonCodes,
  printTypeScriptCodes,
  readApiReasons,
  readErrorCodes,
} from "./error-codes.ts";
import { printKindTypes } from "./kind-types.ts";
import { metricsDefinitions } from "./metrics-definitions.ts";
import { findKubernetesModule, importDefinitions } from "./openapi-import.ts";
import { Output } from "./output.ts";
import { printPrinterColumns } from "./printer-columns.ts";
import type { Definitions } from "./schema.ts";
import { servedKinds } from "./served-kinds.ts";
import { generateStubs } from "./stubs.ts";
import { printTypes } from "./typescript-types.ts";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const check = process.argv.includes("--check");
const output = new Output({ root, check });

const definitions = loadDefinitions();
output.write("spec/builtin/kinds.json", `${JSON.stringify(servedKinds, null, 1)}\n`);
output.write("packages/api/src/builtin.gen.ts", printTypes(definitions, servedKinds));
const sources = readCrdSources(join(root, "spec/crds/src"));
// These stand in for a vendor's: the embedded API alone serves them, and nobody installs them on a cluster.
const standins = readCrdSources(join(root, "spec/crds/one-machine"), join(root, "spec/crds/src"));
output.write("packages/api/src/kinds.gen.ts", printKindTypes([...sources.values(), ...standins.values()]));
const crds = resolveCrds(sources, definitions);
const shown = [...crds].filter(([file]) => sources.get(file)?.typeName === undefined).map(([, crd]) => crd);
output.write("packages/cli/src/objects/printer-columns.gen.ts", printPrinterColumns(shown));
for (const [file, crd] of crds) {
  // A chart cannot reach out of its folder, and not every way that a repository is copied keeps links.
  for (const folder of ["spec/crds", "deploy/chart/crds"]) output.write(`${folder}/${file}`, printCrd(file, crd));
}
const served = [...crds.values(), ...resolveCrds(standins, definitions).values()];
// Parsing the YAML would cost the embedded API server a quarter of a second at every start.
output.write("spec/builtin/crds.json", `[\n${served.map((crd) => JSON.stringify(crd)).join(",\n")}\n]\n`);

output.write("deploy/kubernetes/cluster-roles.yaml", printClusterRoles());
for (const [file, text] of chartTemplates(root)) output.write(`deploy/chart/${file}`, text);

const errorsFile = join(root, "spec/errors.yaml");
output.write("packages/api/src/api-reasons.gen.ts", printApiReasons(readApiReasons(errorsFile)));
const codes = readErrorCodes(errorsFile);
output.write("packages/sdk/src/errors/error-codes.gen.ts", printTypeScriptCodes(codes));
output.write("sdks/go/errorcode/errorcode.gen.go", printGoCodes(codes));
output.write("sdks/python/src/agent_sandbox_sdk/_error_codes.py", printPythonCodes(codes));
generateStubs(root, output, { check });

for (const path of output.stale) process.stderr.write(`${check ? "out of date" : "written"}: ${path}\n`);
if (check && output.stale.length > 0) {
  process.stderr.write("run npm run generate and commit the result\n");
  process.exitCode = 1;
}

/** The committed reduction is the source wherever the module is not at hand, so that checks need no network. */
function loadDefinitions(): Definitions {
  const path = "spec/builtin/definitions.json";
  const module = findKubernetesModule({ download: !check });
  if (module !== undefined) {
    const all = { ...importDefinitions(module, servedKinds), ...metricsDefinitions };
    const lines = Object.entries(all).map(([name, schema]) => `${JSON.stringify(name)}: ${JSON.stringify(schema)}`);
    output.write(path, `{\n${lines.join(",\n")}\n}\n`);
    return all;
  }
  return JSON.parse(readFileSync(join(root, path), "utf8")) as Definitions;
}
