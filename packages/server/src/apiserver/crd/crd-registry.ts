import { asJson, type KubeObject } from "@agent-sandbox/api";
import type { Row } from "../../store/store.ts";
import { objectAt, stringAt } from "../json/json.ts";
import type { Registry } from "../registry/registry.ts";
import type { ResourceDefinition } from "../registry/resource-definition.ts";
import type { Schema } from "../schema/schema.ts";
import { listPrefix } from "../storage/object-key.ts";
import type { ObjectStorage } from "../storage/object-storage.ts";
import { compileCrd } from "./compile-crd.ts";
import { isEstablished } from "./crd-conditions.ts";

/** Turns an object into another version of its kind. */
export type Conversion = (object: KubeObject, toVersion: string) => KubeObject | Promise<KubeObject>;

/** Conversions that run in this process, by `group/kind`; they win over what the CRD says. */
export type Conversions = Readonly<Record<string, Conversion>>;

/** Asks a webhook to convert an object. */
export type ConversionWebhook = (crd: KubeObject, object: KubeObject, toVersion: string) => Promise<KubeObject>;

/** What keeps the registry in step with the stored CustomResourceDefinitions. */
export interface CrdRegistryOptions {
  readonly storage: ObjectStorage;
  readonly registry: Registry;
  readonly metadataSchema: Schema;
  readonly conversions: Conversions;
  readonly webhook: ConversionWebhook | undefined;
  /** Called with a CRD that is being deleted, at each of its writes. */
  readonly onDeleted: (crd: KubeObject) => void;
}

/** Serves the kinds of all stored CRDs, and of every one written later before its writer is answered. */
export function followCrds(options: CrdRegistryOptions): Disposable {
  const { storage, registry } = options;
  const definition = registry.find("apiextensions.k8s.io", "customresourcedefinitions");
  if (definition === undefined) throw new Error("bug: CustomResourceDefinition is not a built-in kind");
  for (const row of storage.store.list({ prefix: listPrefix(definition) }).rows) follow(options, definition, row);
  return storage.onWrite((written, row) => {
    if (written === definition) follow(options, definition, row);
  });
}

function follow(options: CrdRegistryOptions, definition: ResourceDefinition, row: Row): void {
  const crd = options.storage.read(definition, row);
  if (row.deleted) {
    const spec = objectAt(asJson(crd), "spec");
    options.registry.remove(stringAt(spec, "group") ?? "", stringAt(objectAt(spec, "names"), "plural") ?? "");
    return;
  }
  if (isEstablished(crd)) {
    const convert = conversionOf(options, crd);
    options.registry.put(compileCrd(crd, { metadataSchema: options.metadataSchema, convert }));
  }
  if (crd.metadata.deletionTimestamp !== undefined) options.onDeleted(crd);
}

function conversionOf({ conversions, webhook }: CrdRegistryOptions, crd: KubeObject): Conversion | undefined {
  const spec = objectAt(asJson(crd), "spec");
  const key = `${stringAt(spec, "group") ?? ""}/${stringAt(objectAt(spec, "names"), "kind") ?? ""}`;
  const own = Object.hasOwn(conversions, key) ? conversions[key] : undefined;
  if (own !== undefined) return own;
  if (stringAt(objectAt(spec, "conversion"), "strategy") !== "Webhook" || webhook === undefined) return undefined;
  return (object, toVersion) => webhook(crd, object, toVersion);
}
