import type { Sandbox, SandboxClaim } from "@agent-sandbox/api";
import {
  ApiError,
  annotationKeys,
  ignore,
  persistentVolumeClaims,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
  services,
} from "@agent-sandbox/api";
import { endsAnnotation } from "./cluster.ts";
import { claim, namespace, pool, sandbox, template } from "./objects.ts";
import type { World } from "./world.ts";

/** What makes the controllers do what they seldom do. */
const provocations: Readonly<Record<string, string>> = {
  "create sandboxes": "claim burst",
  "create services": "create sandbox",
  "create persistentvolumeclaims": "create sandbox",
  "create networkpolicies": "toggle policy",
  "patch pods": "create claim",
  "patch services": "damage service",
  "patch sandboxtemplates": "toggle policy",
  "patch sandboxtemplates/status": "toggle policy",
  "delete pods": "toggle sandbox",
  "delete services": "toggle service",
  "delete sandboxes": "scale pool",
  "delete sandboxclaims": "let claim expire",
  "delete networkpolicies": "toggle policy",
};

/** What people and programs outside the controllers do; every choice comes from `random`. */
export class User {
  readonly #world: World;
  readonly #random: () => number;
  #made = 0;
  /** UIDs of Sandboxes that a user deleted: their end is no fault of a controller. */
  readonly deleted: Set<string>;
  /** The operation that is done half of the time. */
  stress: string | undefined;
  /** The template was Unmanaged since this was last reset. */
  policyGivenUp = false;
  /** The greatest size the pool was asked for, surge included, since this was last reset. */
  poolSizeMax = 2;
  /** What was done, for the report of a failure. */
  readonly story: string[] = [];

  constructor(world: World, random: () => number, deleted: Set<string>) {
    this.deleted = deleted;
    this.#world = world;
    this.#random = random;
  }

  /** Makes the template and the pool everything else depends on. */
  async prepare(): Promise<void> {
    const { client } = this.#world;
    await client.create(sandboxTemplates, template("tpl", { envVarsInjectionPolicy: "Overrides" }));
    await client.create(sandboxWarmPools, pool("pool", 2));
  }

  /** One random operation, or the one that makes the controllers do this; gives its name. */
  async act(provoked?: string): Promise<string> {
    const weighted: [number, string, () => Promise<unknown>][] = [
      [6, "create claim", () => this.#createClaim()],
      [3, "claim burst", () => this.#claimBurst()],
      [4, "create sandbox", () => this.#createSandbox()],
      [3, "delete claim", () => this.#deleteOne(sandboxClaims)],
      [3, "toggle sandbox", () => this.#toggle()],
      [1, "doze", () => this.#doze()],
      [1, "delete sandbox", () => this.#deleteSandbox()],
      [2, "delete pod", () => this.#deleteOne(pods)],
      [2, "scale pool", () => this.#scale()],
      [2, "edit template", () => this.#editTemplate()],
      [1, "edit claim metadata", () => this.#editClaim()],
      [4, "toggle service", () => this.#toggleService()],
      [5, "damage service", () => this.#damageService()],
      [2, "delete volume claim", () => this.#deleteOne(persistentVolumeClaims)],
      [2, "let claim expire", () => this.#expireClaim()],
      [1, "replace pool", () => this.#replacePool()],
      [1, "replace template", () => this.#replaceTemplate()],
      [5, "toggle policy", () => this.#togglePolicy()],
      // Only under stress: it takes long.
      [0, "pool rush", () => this.#poolRush()],
    ];
    let roll = this.#random() * weighted.reduce((sum, [weight]) => sum + weight, 0);
    const stressed = this.stress !== undefined && this.#random() < 0.5 ? this.stress : undefined;
    const wanted = stressed ?? (provoked === undefined ? undefined : provocations[provoked]);
    const [, name, operation] = weighted.find(([, title]) => title === wanted) ??
      weighted.find(([weight]) => (roll -= weight) < 0) ??
      weighted[0] ?? [0, "", async () => {}];
    this.story.push(name);
    // A user may lose a race, too.
    await operation().catch((error: unknown) => {
      if (!(error instanceof ApiError) || error.status >= 500) throw error;
    });
    return name;
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  #pick<T>(items: readonly T[]): T | undefined {
    return items[Math.floor(this.#random() * items.length)];
  }

  #end(): string {
    return this.#pick(["Succeeded", "Failed"]) ?? "Failed";
  }

  #soon(): string {
    const atMs = this.#world.clock.nowMs() + Math.floor(this.#random() * 5) * 1000;
    return new Date(atMs).toISOString();
  }

  async #createClaim(): Promise<void> {
    this.#made += 1;
    const spec: Partial<SandboxClaim["spec"]> = {
      ...(this.#chance(0.15) ? { env: [{ name: "A", value: "1" }] } : {}),
      ...(this.#chance(0.2) ? { additionalPodMetadata: { labels: { "sandbox.users.io/team": "a" } } } : {}),
      ...(this.#chance(0.2)
        ? {
            lifecycle: {
              shutdownTime: this.#soon(),
              shutdownPolicy: this.#pick(["Delete", "Retain", "DeleteForeground"] as const) ?? "Retain",
            },
          }
        : {}),
    };
    if (spec.env === undefined && this.#chance(0.15)) spec.startPolicy = "WarmOnly";
    if (this.#chance(0.15)) {
      const annotations = { [endsAnnotation]: this.#end() };
      spec.additionalPodMetadata = { ...spec.additionalPodMetadata, annotations };
      spec.lifecycle ??= { ttlSecondsAfterFinished: this.#pick([0, 5]) ?? 0, shutdownPolicy: "Delete" };
    }
    await this.#world.client.create(sandboxClaims, claim(`c${this.#made}`, spec));
  }

  /** Several claims at once, half of the time while the pool is taken away under them. */
  async #claimBurst(): Promise<void> {
    for (let count = 0; count < 3; count++) await this.#createClaim();
    if (!this.#chance(0.5)) return;
    const body = { spec: { replicas: 0 } };
    await this.#world.client.patch(sandboxWarmPools, { namespace, name: "pool" }, { type: "merge", body });
  }

  /** A full pool is emptied while claims come for its members. */
  async #poolRush(): Promise<void> {
    const key = { namespace, name: "pool" };
    const scale = (replicas: number) =>
      this.#world.client.patch(sandboxWarmPools, key, { type: "merge", body: { spec: { replicas } } });
    await scale(4);
    this.poolSizeMax = Math.max(this.poolSizeMax, 5);
    for (let round = 0; round < 4; round++) {
      await this.#world.rested(2);
      await this.#world.cluster.step();
    }
    await this.#world.rested(2);
    await Promise.all([scale(0), this.#createClaim(), this.#createClaim(), this.#createClaim()]);
  }

  async #createSandbox(wanted: Partial<Sandbox["spec"]> = {}): Promise<void> {
    this.#made += 1;
    const spec: Partial<Sandbox["spec"]> = {
      ...(this.#chance(0.5) ? { service: true } : {}),
      ...(this.#chance(0.7)
        ? {
            volumeClaimTemplates: [
              {
                metadata: { name: "v" },
                spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
              },
            ],
          }
        : {}),
      ...(this.#chance(0.2)
        ? { shutdownTime: this.#soon(), shutdownPolicy: this.#chance(0.5) ? "Delete" : "Retain" }
        : {}),
      ...(this.#chance(0.2) ? { autoSuspension: { inactivityTimeoutSeconds: 10 } } : {}),
      ...(this.#chance(0.5) ? this.#deepSleep() : {}),
      ...(this.#chance(0.3) ? { podFailurePolicy: { type: "Recreate", retriesMax: 1, backoffSeconds: 1 } } : {}),
      ...(this.#chance(0.2) ? { ttlSecondsAfterFinished: this.#pick([0, 5]) ?? 0 } : {}),
      ...wanted,
    };
    const made = sandbox(`s${this.#made}`, spec);
    if (this.#chance(0.2)) made.spec.podTemplate.metadata = { annotations: { [endsAnnotation]: this.#end() } };
    await this.#world.client.create(sandboxes, made);
  }

  /** Freeze or Hibernate, by idleness or by hand alone, one after the other, with or without wake on traffic. */
  #deepSleep(): Partial<Sandbox["spec"]> {
    const type = this.#pick(["Freeze", "Hibernate"] as const) ?? "Freeze";
    const hibernateAfterSeconds = type === "Freeze" && this.#chance(0.5) ? { hibernateAfterSeconds: 20 } : {};
    return {
      suspensionStrategy: { type },
      ...(this.#chance(0.5) && { autoSuspension: { inactivityTimeoutSeconds: 10, ...hibernateAfterSeconds } }),
      ...(this.#chance(0.4) && { wakePolicy: "OnTraffic" }),
    };
  }

  /** Somebody uses a Sandbox, best one that sleeps. */
  async #touch(): Promise<void> {
    const all = await this.#world.sandboxes();
    const found = this.#pick(all.filter(({ status }) => status?.sleep !== undefined)) ?? this.#pick(all);
    if (found === undefined) return;
    const at = new Date(this.#world.clock.nowMs()).toISOString();
    await this.#annotate(found, { [annotationKeys.lastActivityAt]: at });
  }

  /** Somebody gives up what was saved of a Sandbox. */
  async #startCold(): Promise<void> {
    const found = this.#pick((await this.#world.sandboxes()).filter(({ status }) => status?.sleep !== undefined));
    if (found !== undefined) await this.#annotate(found, { [annotationKeys.coldStart]: found.status?.sleep?.id ?? "" });
  }

  /** A Sandbox that sleeps deeply is put to sleep and woken a few times, with or without time for its node in between. */
  async #doze(): Promise<void> {
    const isDeep = ({ spec }: Sandbox): boolean => spec.suspensionStrategy !== undefined;
    if (!(await this.#world.sandboxes()).some(isDeep) || this.#chance(0.2)) {
      await this.#createSandbox(this.#deepSleep());
      await this.#rounds(3);
    }
    const found = this.#pick((await this.#world.sandboxes()).filter(isDeep));
    if (found === undefined) return;
    for (let count = 1 + Math.floor(this.#random() * 4); count > 0; count--) {
      await this.#nap(found);
      await this.#rounds(Math.floor(this.#random() * 5));
    }
  }

  async #nap(found: Sandbox): Promise<void> {
    const naps: readonly (() => Promise<unknown>)[] = [
      () => this.#patchSandbox(found, { operatingMode: "Suspended" }),
      () => this.#patchSandbox(found, { operatingMode: "Suspended" }),
      () => this.#patchSandbox(found, { operatingMode: "Running" }),
      () => this.#touch(),
      () => this.#startCold(),
      () => this.#world.clock.advance(11_000, { quietTurns: 2 }),
    ];
    await this.#pick(naps)?.();
  }

  /** Lets controllers and nodes work for a while. */
  async #rounds(count: number): Promise<void> {
    for (let round = 0; round < count; round++) {
      await this.#world.rested(2);
      await this.#world.cluster.step();
    }
    await this.#world.rested(2);
  }

  async #annotate({ metadata }: Sandbox, annotations: Record<string, string>): Promise<void> {
    const body = { metadata: { annotations } };
    await this.#world.client.patch(sandboxes, { namespace, name: metadata.name }, { type: "merge", body });
  }

  async #deleteOne(resource: typeof pods | typeof sandboxClaims | typeof persistentVolumeClaims): Promise<void> {
    const found = this.#pick((await this.#world.client.list(resource as typeof pods)).items);
    if (found !== undefined)
      await this.#world.client.delete(resource as typeof pods, { namespace, name: found.metadata.name });
  }

  async #deleteSandbox(): Promise<void> {
    const found = this.#pick(await this.#world.sandboxes());
    if (found === undefined) return;
    this.deleted.add(found.metadata.uid ?? "");
    await this.#world.client.delete(sandboxes, { namespace, name: found.metadata.name });
  }

  async #toggle(): Promise<void> {
    const found = this.#pick(await this.#world.sandboxes());
    if (found === undefined) return;
    const operatingMode = found.spec.operatingMode === "Suspended" ? "Running" : "Suspended";
    await this.#patchSandbox(found, { operatingMode });
  }

  async #toggleService(): Promise<void> {
    const all = await this.#world.sandboxes();
    const found = this.#pick(all.filter(({ spec }) => spec.service === true)) ?? this.#pick(all);
    if (found === undefined) return;
    const name = this.#chance(0.5) ? "x" : "y";
    await this.#patchSandbox(found, {
      service: found.spec.service !== true,
      podTemplate: { metadata: { labels: { [`sandbox.users.io/${name}`]: String(this.#made) } } },
    });
  }

  async #damageService(): Promise<void> {
    if (this.#world.ground.read(services).length === 0) {
      await this.#createSandbox({ service: true });
      await this.#world.rested(2);
    }
    const found = this.#pick(this.#world.ground.read(services));
    if (found === undefined) return;
    const body = { spec: { selector: { damaged: "true" } } };
    await this.#world.client.patch(services, { namespace, name: found.metadata.name }, { type: "merge", body });
  }

  async #expireClaim(): Promise<void> {
    if ((await this.#world.claims()).length === 0) await this.#createClaim();
    const found = this.#pick(await this.#world.claims());
    if (found === undefined) return;
    const shutdownPolicy = this.#pick(["Delete", "Delete", "Retain", "DeleteForeground"] as const) ?? "Delete";
    const body = { spec: { lifecycle: { shutdownTime: this.#soon(), shutdownPolicy } } };
    await this.#world.client.patch(sandboxClaims, { namespace, name: found.metadata.name }, { type: "merge", body });
  }

  async #patchSandbox(found: Sandbox, spec: object): Promise<void> {
    await this.#world.client.patch(
      sandboxes,
      { namespace, name: found.metadata.name },
      { type: "merge", body: { spec } },
    );
  }

  async #scale(): Promise<void> {
    const replicas = Math.floor(this.#random() * 4);
    const type = this.#pick(["Recreate", "OnReplenish", "RollingUpdate"] as const) ?? "OnReplenish";
    this.poolSizeMax = Math.max(this.poolSizeMax, replicas + (type === "RollingUpdate" ? Math.ceil(replicas / 4) : 0));
    const body = { spec: { replicas, updateStrategy: { type } } };
    await this.#world.client.patch(sandboxWarmPools, { namespace, name: "pool" }, { type: "merge", body });
    const { spec } = await this.#world.client.get(sandboxWarmPools, { namespace, name: "pool" });
    this.poolSizeMax = Math.max(this.poolSizeMax, (spec.replicas ?? 1) + 1);
  }

  async #editTemplate(): Promise<void> {
    const image = `image-${Math.floor(this.#random() * 3)}`;
    const body = { spec: { podTemplate: { spec: { containers: [{ name: "main", image }] } } } };
    await this.#world.client.patch(sandboxTemplates, { namespace, name: "tpl" }, { type: "merge", body });
    this.poolSizeMax += 1;
  }

  /** Gives the policy up, takes it back, or both with time in between for the controller to follow. */
  async #togglePolicy(): Promise<void> {
    const { client } = this.#world;
    const key = { namespace, name: "tpl" };
    for (let count = this.#chance(0.6) ? 2 : 1; count > 0; count--) {
      const { spec } = await client.get(sandboxTemplates, key);
      this.policyGivenUp = true;
      const networkPolicyManagement = spec.networkPolicyManagement === "Unmanaged" ? "Managed" : "Unmanaged";
      await client.patch(sandboxTemplates, key, { type: "merge", body: { spec: { networkPolicyManagement } } });
      await this.#world.rested(2);
    }
  }

  async #editClaim(): Promise<void> {
    const found = this.#pick(await this.#world.claims());
    if (found === undefined) return;
    const labels = { "sandbox.users.io/team": this.#pick(["a", "b"]) ?? "a" };
    const body = { spec: { additionalPodMetadata: { labels } } };
    await this.#world.client.patch(sandboxClaims, { namespace, name: found.metadata.name }, { type: "merge", body });
  }

  async #replacePool(): Promise<void> {
    const { client } = this.#world;
    await client.delete(sandboxWarmPools, { namespace, name: "pool" });
    await client.create(sandboxWarmPools, pool("pool", 1 + Math.floor(this.#random() * 2)));
  }

  async #replaceTemplate(): Promise<void> {
    const { client } = this.#world;
    await client.delete(sandboxTemplates, { namespace, name: "tpl" });
    await client
      .create(sandboxTemplates, template("tpl", { envVarsInjectionPolicy: "Overrides" }))
      .catch(ignore("AlreadyExists"));
  }

  /** What must exist for everything else to come to rest. */
  async repair(): Promise<void> {
    const { client } = this.#world;
    await client.create(sandboxWarmPools, pool("pool", 1)).catch(ignore("AlreadyExists"));
    await client
      .create(sandboxTemplates, template("tpl", { envVarsInjectionPolicy: "Overrides" }))
      .catch(ignore("AlreadyExists"));
  }
}
