import {
  invalid,
  type KubeObject,
  type ObjectMeta,
  type Pod,
  pods,
  type Resource,
  type Service,
  sandboxes,
  services,
  serviceUnavailable,
} from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import { type AddressPlan, AddressPool } from "./address-pool.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";
import { addressAnnotation } from "./reserved-metadata.ts";

/** How long a client waits before it asks again for an address. */
const retryAfterSeconds = 5;

/**
 * Gives each Sandbox an address for its whole life, each Pod the address of its Sandbox (or one of its own), and each
 * Service its cluster address. It happens while the object is admitted, so that nobody ever sees one without.
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
      await this.#reader.subscribe(sandboxes, ({ object, deleted }) =>
        note(this.#sandboxPool, sandboxes, object, deleted),
      ),
      await this.#reader.subscribe(pods, ({ object, deleted }) => {
        // An address of its own goes with the Pod even if a Sandbox adopted it meanwhile; a shared one has another owner.
        if (deleted || sandboxOwner(object) === undefined) note(this.#sandboxPool, pods, object, deleted);
      }),
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
    if (resource === "pods") return this.#allocateForPod(object as Pod, attributes);
    this.#annotate(object.metadata, ownerId(sandboxes, object.metadata), attributes);
  }

  async #allocateForPod(pod: Pod, attributes: AdmissionAttributes): Promise<void> {
    if (pod.spec?.hostNetwork === true) return;
    const owner = sandboxOwner(pod);
    const key = { namespace: attributes.namespace, name: owner?.name ?? "" };
    const sandbox = owner === undefined ? undefined : await this.#reader.get(sandboxes, key);
    const address =
      sandbox?.metadata.uid === owner?.uid ? sandbox?.metadata.annotations?.[addressAnnotation] : undefined;
    if (address !== undefined) pod.metadata.annotations = { ...pod.metadata.annotations, [addressAnnotation]: address };
    else this.#annotate(pod.metadata, ownerId(pods, pod.metadata), attributes);
  }

  #annotate(metadata: ObjectMeta, owner: string, { dryRun }: AdmissionAttributes): void {
    if (dryRun) return;
    const address = this.#sandboxPool.reserve(owner, this.#clock.nowMs());
    if (address === undefined)
      throw serviceUnavailable("no free sandbox address; delete sandboxes that are not needed", retryAfterSeconds);
    metadata.annotations = { ...metadata.annotations, [addressAnnotation]: address };
  }

  #allocateForService(service: Service, { dryRun }: AdmissionAttributes): void {
    const { spec } = service;
    if (spec === undefined || spec.type === "ExternalName" || spec.clusterIP === "None") {
      if (spec?.clusterIP === "None") spec.clusterIPs = ["None"];
      return;
    }
    const owner = ownerId(services, service.metadata);
    const wanted = spec.clusterIP || spec.clusterIPs?.[0];
    if (wanted !== undefined && !this.#servicePool.reserveExactly(wanted, owner, this.#clock.nowMs()))
      throw addressRefused(service, wanted);
    const address = wanted ?? (dryRun ? undefined : this.#servicePool.reserve(owner, this.#clock.nowMs()));
    if (address === undefined && !dryRun) throw serviceUnavailable("no free service address", retryAfterSeconds);
    if (address !== undefined) Object.assign(spec, { clusterIP: address, clusterIPs: [address] });
    spec.ipFamilies ??= ["IPv4"];
    spec.ipFamilyPolicy ??= "SingleStack";
  }

  #noteService(service: Service, deleted: boolean): void {
    const address = service.spec?.clusterIP;
    if (address === undefined || address === "" || address === "None") return;
    const owner = ownerId(services, service.metadata);
    if (deleted) this.#servicePool.release(address, owner);
    else this.#servicePool.confirm(address, owner);
  }
}

function note(pool: AddressPool, resource: Resource<KubeObject>, object: KubeObject, deleted: boolean): void {
  const address = object.metadata.annotations?.[addressAnnotation];
  if (address === undefined) return;
  const owner = ownerId(resource, object.metadata);
  if (deleted) pool.release(address, owner);
  else pool.confirm(address, owner);
}

/** Names, not uids: an object being admitted may not have its uid yet, and two objects never share a name at one time. */
function ownerId({ resource }: Resource<KubeObject>, { namespace = "", name, generateName = "" }: ObjectMeta): string {
  return `${resource}/${namespace}/${name === "" ? generateName : name}`;
}

/** The Sandbox that controls a Pod. */
function sandboxOwner(pod: Pod): { name: string; uid: string } | undefined {
  return pod.metadata.ownerReferences?.find(
    ({ controller, kind, apiVersion }) =>
      controller === true && kind === sandboxes.kind && apiVersion.startsWith(`${sandboxes.group}/`),
  );
}

function addressRefused(service: Service, address: string): Error {
  const message = `Invalid value: "${address}": failed to allocate IP ${address}: provided IP is already allocated or not in the valid range`;
  return invalid({ kind: "Service", name: service.metadata.name }, [
    { reason: "FieldValueInvalid", message, field: "spec.clusterIPs" },
  ]);
}
