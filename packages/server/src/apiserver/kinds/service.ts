import { isIP } from "node:net";
import { asJson, isJsonObject, type JsonObject } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt, textOf } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { duplicate, type FieldError, invalid, notSupported, required } from "../schema/field-error.ts";

const serviceTypes = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const protocols = ["SCTP", "TCP", "UDP"];

/** Services: defaults as Kubernetes gives them; addresses are allocated by a stand-in. */
export const serviceStrategy: Strategy = {
  nameRule: "label",
  returnsDeleted: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec") ?? {};
    asJson(object)["spec"] = spec;
    spec["type"] ??= "ClusterIP";
    spec["sessionAffinity"] ??= "None";
    if (spec["type"] !== "ExternalName") spec["internalTrafficPolicy"] ??= "Cluster";
    for (const port of listAt(spec, "ports")) if (isJsonObject(port)) defaultPort(port);
  },
  prepareCreate(object) {
    asJson(object)["status"] = { loadBalancer: {} };
    giveFamilies(objectAt(asJson(object), "spec") ?? {});
  },
  prepareUpdate(object, old) {
    // An update that leaves the allocated address out keeps it.
    const spec = objectAt(asJson(object), "spec");
    const before = objectAt(asJson(old), "spec");
    if (spec === undefined || before === undefined || spec["type"] === "ExternalName") return;
    for (const key of ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"])
      if (spec[key] === undefined && before[key] !== undefined) spec[key] = before[key];
    giveFamilies(spec);
  },
  validate: (object) => validateService(objectAt(asJson(object), "spec") ?? {}),
  validateUpdate(object, old) {
    const before = stringAt(objectAt(asJson(old), "spec"), "clusterIP") ?? "";
    const spec = objectAt(asJson(object), "spec");
    const after = stringAt(spec, "clusterIP") ?? "";
    if (before === "" || before === after || spec?.["type"] === "ExternalName") return [];
    return [invalid("spec.clusterIP", after, "field is immutable")];
  },
  selectableFields(object) {
    const spec = objectAt(asJson(object), "spec");
    return { "spec.clusterIP": stringAt(spec, "clusterIP") ?? "", "spec.type": stringAt(spec, "type") ?? "" };
  },
};

/** What goes with an address. Not a default: the server gives it with the address, and no client owns it. */
function giveFamilies(spec: JsonObject): void {
  if (spec["type"] === "ExternalName") return;
  spec["ipFamilyPolicy"] ??= "SingleStack";
  spec["ipFamilies"] ??= ["IPv4"];
  if (spec["clusterIP"] === "None") spec["clusterIPs"] ??= ["None"];
}

function defaultPort(port: JsonObject): void {
  port["protocol"] ??= "TCP";
  if (port["targetPort"] === undefined || port["targetPort"] === 0 || port["targetPort"] === "") {
    if (port["port"] !== undefined) port["targetPort"] = port["port"];
  }
}

function validateService(spec: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  const type = stringAt(spec, "type") ?? "";
  if (!serviceTypes.includes(type)) errors.push(notSupported("spec.type", type, serviceTypes));
  if (type === "ExternalName" && !spec["externalName"]) errors.push(required("spec.externalName"));
  const ports = listAt(spec, "ports").filter(isJsonObject);
  if (ports.length === 0 && type !== "ExternalName" && spec["clusterIP"] !== "None")
    errors.push(required("spec.ports"));
  const names = new Set<string>();
  for (const [index, port] of ports.entries()) {
    const path = `spec.ports[${index}]`;
    const name = stringAt(port, "name") ?? "";
    if (name === "" && ports.length > 1) errors.push(required(`${path}.name`));
    else if (names.has(name) && name !== "") errors.push(duplicate(`${path}.name`, name));
    names.add(name);
    const number = port["port"];
    if (typeof number !== "number" || number < 1 || number > 65_535) {
      errors.push(invalid(`${path}.port`, number ?? 0, "must be between 1 and 65535, inclusive"));
    }
    if (!protocols.includes(stringAt(port, "protocol") ?? ""))
      errors.push(notSupported(`${path}.protocol`, port["protocol"], protocols));
    const target = port["targetPort"];
    if (typeof target === "number" && (target < 1 || target > 65_535))
      errors.push(invalid(`${path}.targetPort`, target, "must be between 1 and 65535, inclusive"));
  }
  return [...errors, ...doubledPorts(ports), ...addressErrors(spec)];
}

/** Two ports may share a number only with different protocols. */
function doubledPorts(ports: readonly JsonObject[]): FieldError[] {
  const seen = new Set<string>();
  return ports.flatMap((port, index) => {
    const key = `${textOf(port["protocol"])}/${textOf(port["port"])}`;
    const isDoubled = seen.has(key);
    seen.add(key);
    if (!isDoubled) return [];
    // Kubernetes prints the port as its code holds it while comparing: number and protocol, all else empty.
    const shown = { Name: "", Protocol: port["protocol"] ?? "", AppProtocol: null, Port: port["port"] ?? 0 };
    return [duplicate(`spec.ports[${index}]`, { ...shown, TargetPort: 0, NodePort: 0 })];
  });
}

function addressErrors(spec: JsonObject): FieldError[] {
  const single = stringAt(spec, "clusterIP") ?? "";
  const listed = listAt(spec, "clusterIPs").map(String);
  const addresses = listed.length > 0 || single === "" ? listed : [single];
  return addresses.flatMap((address, index) => {
    if (address === "" || address === "None" || isIP(address) !== 0) return [];
    const problem = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    return [invalid(`spec.clusterIPs[${index}]`, address, problem)];
  });
}
