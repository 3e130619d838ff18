import { BlockList, isIP } from "node:net";
import { asJson, isJsonObject, type JsonObject } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt, textOf } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, forbiddenField, invalid, notSupported, required } from "../schema/field-error.ts";
import { matchesFormat } from "../schema/formats.ts";

const directions = [
  { field: "ingress", peers: "from" },
  { field: "egress", peers: "to" },
] as const;
const policyTypes = ["Ingress", "Egress"];
const protocols = ["TCP", "UDP", "SCTP"];

/** NetworkPolicies: types by what they have rules for, and blocks of addresses that are such. */
export const networkPolicyStrategy: Strategy = {
  hasGeneration: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    if (spec === undefined) return;
    spec["podSelector"] ??= {};
    // An empty list of rules is none, as in Go: a policy that allows nothing out must say that it is about Egress.
    for (const { field } of directions) if (listAt(spec, field).length === 0) delete spec[field];
    if (listAt(spec, "policyTypes").length === 0)
      spec["policyTypes"] = spec["egress"] === undefined ? ["Ingress"] : ["Ingress", "Egress"];
    for (const { field } of directions) {
      for (const port of listAt(spec, field)
        .filter(isJsonObject)
        .flatMap((rule) => listAt(rule, "ports")))
        if (isJsonObject(port)) port["protocol"] ??= "TCP";
    }
  },
  validate: (object) => validateSpec(objectAt(asJson(object), "spec") ?? {}),
};

function validateSpec(spec: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  for (const { field, peers } of directions) {
    for (const [index, rule] of listAt(spec, field).filter(isJsonObject).entries()) {
      const path = `spec.${field}[${index}]`;
      for (const [at, port] of listAt(rule, "ports").filter(isJsonObject).entries())
        errors.push(...portErrors(port, `${path}.ports[${at}]`));
      for (const [at, peer] of listAt(rule, peers).filter(isJsonObject).entries())
        errors.push(...peerErrors(peer, `${path}.${peers}[${at}]`));
    }
  }
  const types = listAt(spec, "policyTypes");
  if (types.length > policyTypes.length)
    return [...errors, invalid("spec.policyTypes", types, "may not specify more than two policyTypes")];
  for (const [index, type] of types.entries())
    if (!policyTypes.includes(textOf(type))) errors.push(notSupported(`spec.policyTypes[${index}]`, type, policyTypes));
  return errors;
}

function portErrors(entry: JsonObject, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const { protocol, port, endPort } = entry;
  if (protocol !== undefined && !protocols.includes(textOf(protocol)))
    errors.push(notSupported(`${path}.protocol`, protocol, protocols));
  const range = "must be between 1 and 65535, inclusive";
  if (typeof port === "number" && !isPort(port)) errors.push(invalid(`${path}.port`, port, range));
  if (typeof endPort !== "number") return errors;
  if (port === undefined)
    errors.push(invalid(`${path}.endPort`, endPort, "may not be specified when `port` is not specified"));
  else if (typeof port !== "number")
    errors.push(invalid(`${path}.endPort`, endPort, "may not be specified when `port` is non-numeric"));
  else if (endPort < port) errors.push(invalid(`${path}.endPort`, port, "must be greater than or equal to `port`"));
  if (!isPort(endPort)) errors.push(invalid(`${path}.endPort`, endPort, range));
  return errors;
}

function isPort(value: number): boolean {
  return value >= 1 && value <= 65_535;
}

function peerErrors(peer: JsonObject, path: string): FieldError[] {
  const block = objectAt(peer, "ipBlock");
  const selectors = ["podSelector", "namespaceSelector"].filter((key) => peer[key] !== undefined).length;
  if (block === undefined) return selectors > 0 ? [] : [required(path, "must specify a peer")];
  const errors = blockErrors(block, `${path}.ipBlock`);
  if (selectors > 0) errors.push(forbiddenField(path, "may not specify both ipBlock and another peer"));
  return errors;
}

const notCidr = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

function blockErrors(block: JsonObject, path: string): FieldError[] {
  const cidr = stringAt(block, "cidr") ?? "";
  if (cidr === "") return [required(`${path}.cidr`)];
  if (!matchesFormat("cidr", cidr)) return [invalid(`${path}.cidr`, cidr, notCidr)];
  return listAt(block, "except").flatMap((value, index) => {
    const except = textOf(value);
    const at = `${path}.except[${index}]`;
    if (!matchesFormat("cidr", except)) return [invalid(at, except, notCidr)];
    return isInside(except, cidr) ? [] : [invalid(at, except, "must be a strict subset of `cidr`")];
  });
}

function isInside(inner: string, outer: string): boolean {
  const [innerAddress = "", innerBits = ""] = inner.split("/");
  const [outerAddress = "", outerBits = ""] = outer.split("/");
  if (isIP(innerAddress) !== isIP(outerAddress) || Number(innerBits) <= Number(outerBits)) return false;
  const family = isIP(outerAddress) === 6 ? "ipv6" : "ipv4";
  const list = new BlockList();
  list.addSubnet(outerAddress, Number(outerBits), family);
  return list.check(innerAddress, family);
}
