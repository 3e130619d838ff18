import { isIP } from "node:net";
import {
  annotationKeys,
  archiveState,
  invalid,
  isControlledBy,
  type KubeObject,
  type ObjectMeta,
  type Pod,
  type Resource,
  type Sandbox,
  type SandboxArchive,
  type Service,
  sandboxArchives,
  sandboxes,
  sandboxReferenceOf,
  services,
  serviceUnavailable,
} from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import { type AddressPlan, AddressPool } from "./address-pool.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** How long a client waits before it asks again for an address. */
const retryAfterSeconds = 5;

/**
 * Gives each Sandbox an address for its whole life, each Pod of a Sandbox that address, and each Service its cluster
 * address. It happens while the object is admitted, so that no reader sees one without an address.
 */
export class AddressAllocation implements Admission {
  readonly name = "AddressAllocation";
  readonly #reader: ObjectReader;
  readonly #clock: { nowMs(): number };
  readonly #sandboxPool: AddressPool;
  readonly #servicePool: AddressPool;

  constructor(reader: ObjectReader, clock: { nowMs(): number }, plan: AddressPlan) {
    this.#reader = reader;
    this.#clock = clock;
    this.#sandboxPool = new AddressPool(plan.sandboxes);
    this.#servicePool = new AddressPool(plan.services);
  }

  /** Takes in the addresses that stored objects have, now and from now on; resolves when the present ones are in. */
  async follow(): Promise<Disposable> {
    const subscriptions = [
      await this.#reader.subscribe(sandboxes, ({ object, deleted }) => this.#noteSandbox(object, deleted)),
      await this.#reader.subscribe(sandboxArchives, ({ object, deleted }) => this.#noteArchive(object, deleted)),
      await this.#reader.subscribe(services, ({ object, deleted }) => this.#noteService(object, deleted)),
    ];
    return {
      [Symbol.dispose]: () => {
        for (const subscription of subscriptions) subscription[Symbol.dispose]();
      },
    };
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    if (subresource !== "" || (verb !== "create" && verb !== "update")) return false;
    if (group === "") return resource === "services" || (resource === "pods" && verb === "create");
    return verb === "create" && group === sandboxes.group && resource === sandboxes.resource;
  }

  async mutate(attributes: AdmissionAttributes): Promise<void> {
    const { resource, object } = attributes;
    if (object === undefined) return;
    if (resource === "services") return this.#allocateForService(object as Service, attributes);
    if (resource === "pods") return this.#copyToPod(object as Pod, attributes.namespace);
    this.#allocateForSandbox(object.metadata, attributes.dryRun);
  }

  async #copyToPod(pod: Pod, namespace: string): Promise<void> {
    const owner = sandboxReferenceOf(pod);
    const sandbox =
      owner === undefined ? undefined : await this.#reader.get(sandboxes, { namespace, name: owner.name });
    const isOwned =
      sandbox !== undefined &&
      isControlledBy({ metadata: { ...pod.metadata, namespace } }, sandboxes, sandbox as Sandbox);
    // It tells people where the Pod will be; the node gives the address itself, to the Pod that the Sandbox names.
    const address = isOwned ? sandbox.metadata.annotations?.[annotationKeys.address] : undefined;
    if (address !== undefined)
      pod.metadata.annotations = { ...pod.metadata.annotations, [annotationKeys.address]: address };
  }

  #allocateForSandbox(metadata: ObjectMeta, dryRun: boolean): void {
    if (dryRun) return;
    const address = this.#sandboxPool.reserve(ownerId(sandboxes, metadata), this.#clock.nowMs());
    if (address === undefined)
      throw serviceUnavailable("no free sandbox address; delete sandboxes that are not needed", retryAfterSeconds);
    metadata.annotations = { ...metadata.annotations, [annotationKeys.address]: address };
  }

  #allocateForService(service: Service, { dryRun, oldObject }: AdmissionAttributes): void {
    const { spec } = service;
    if (spec === undefined || spec.type === "ExternalName" || spec.clusterIP === "None") {
      if (spec?.clusterIP === "None") spec.clusterIPs = ["None"];
      return;
    }
    const owner = ownerId(services, service.metadata);
    const wanted = spec.clusterIP || spec.clusterIPs?.[0];
    // What the Service has already is its own, wherever it came from.
    if (wanted !== undefined && wanted === (oldObject as Service | undefined)?.spec?.clusterIP) return;
    // One that is no address is refused by validation, in its own words.
    if (wanted !== undefined && isIP(wanted) === 0) return;
    if (wanted !== undefined && !this.#servicePool.reserveExactly(wanted, owner, this.#clock.nowMs()))
      throw addressRefused(service, wanted);
    const address = wanted ?? (dryRun ? undefined : this.#servicePool.reserve(owner, this.#clock.nowMs()));
    if (address === undefined && !dryRun) throw serviceUnavailable("no free service address", retryAfterSeconds);
    if (address !== undefined) Object.assign(spec, { clusterIP: address, clusterIPs: [address] });
    spec.ipFamilies ??= ["IPv4"];
    spec.ipFamilyPolicy ??= "SingleStack";
  }

  #noteSandbox({ metadata }: KubeObject, deleted: boolean): void {
    const address = metadata.annotations?.[annotationKeys.address];
    if (address === undefined) return;
    if (deleted) this.#sandboxPool.release(address, ownerId(sandboxes, metadata));
    else this.#sandboxPool.confirm(address, ownerId(sandboxes, metadata));
  }

  /** The address of a Sandbox that has left stays that of its name. */
  #noteArchive(object: KubeObject, deleted: boolean): void {
    const archive = object as SandboxArchive;
    const owner = ownerId(sandboxes, archive.metadata);
    if (deleted || archiveState(archive).step !== "left") return this.#sandboxPool.unkeep(owner);
    for (const address of archive.status?.address ?? []) this.#sandboxPool.keep(address, owner);
  }

  #noteService(service: Service, deleted: boolean): void {
    const address = service.spec?.clusterIP;
    if (address === undefined || address === "" || address === "None") return;
    const owner = ownerId(services, service.metadata);
    if (deleted) this.#servicePool.release(address, owner);
    else this.#servicePool.confirm(address, owner);
  }
}

/** Names, not uids: an object being admitted may not have its uid yet, and two objects never share a name at one time. */
function ownerId({ resource }: Resource<KubeObject>, { namespace = "", name, generateName = "" }: ObjectMeta): string {
  return `${resource}/${namespace}/${name === "" ? generateName : name}`;
}

function addressRefused(service: Service, address: string): Error {
  const message = `Invalid value: "${address}": failed to allocate IP ${address}: provided IP is already allocated or not in the valid range`;
  return invalid({ kind: "Service", name: service.metadata.name }, [
    { reason: "FieldValueInvalid", message, field: "spec.clusterIPs" },
  ]);
}
