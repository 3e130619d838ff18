import { readFileSync } from "node:fs";
import { type NetworkPolicy, type PodTemplate, sandboxTemplates } from "@agent-sandbox/api";
import { networkPolicies, pods } from "@agent-sandbox/api/resource";
import type { CreateOptions, Engine, Sandbox } from "@agent-sandbox/sdk";
import { SandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import { pauseFor } from "@agent-sandbox/sdk/timing/pause";
import { CliError } from "../cli-error.ts";
import { type Attempt, isOverDisk, type Outcome, type Place } from "./attempt.ts";
import type { Mark } from "./ground.ts";

/** A place that is a sandbox. */
export type BoxPlace = Exclude<Place, "host">;

/** Where the program is put inside. */
const programInside = "/tmp/sandbox-probe";
/** What tells the policy's sandbox from the others. */
const placeLabel = "agent-sandbox.dev/verify";
/** A start that takes longer is reported as a failure of the run. */
const readyTimeoutMs = 60_000;
/** Longer than every attempt's own bound together with a slow machine's start of a program. */
const tryMs = 30_000;

/** How sandboxes are made. */
export interface BoxOptions {
  readonly engine: Engine;
  readonly namespace: string;
  readonly image: string | undefined;
  readonly runtime: string | undefined;
  readonly podTemplate: PodTemplate | undefined;
  readonly memoryBytes: number;
  readonly diskBytes: number;
  readonly program: string;
  readonly marks: Readonly<Record<Place, Mark>>;
  readonly port: number;
  readonly signal: AbortSignal;
}

const lookEveryMs = 200;

/** Resolves when a sandbox's container ends, with how. */
async function awaitEnd({ client }: Engine, { namespace, name }: Sandbox, signal: AbortSignal): Promise<string> {
  const endOf = async (): Promise<string | undefined> => {
    // An API that does not answer now is asked again; the signal ends it.
    const pod = await client.get(pods, { namespace, name }, { signal }).catch(() => undefined);
    const [container] = pod?.status?.containerStatuses ?? [];
    const ended = container?.state?.terminated ?? container?.lastState?.terminated;
    return ended && `${ended.reason ?? "ended"} at ${ended.finishedAt ?? ""}`;
  };
  const before = await endOf();
  for (;;) {
    await pauseFor(lookEveryMs, signal);
    const found = await endOf();
    if (found !== undefined && found !== before) return `the sandbox was ended: ${found}`;
  }
}

/** The template whose Pods are tested instead of the default ones. */
export async function readTemplate(engine: Engine, namespace: string, name: string): Promise<PodTemplate> {
  return (await engine.client.get(sandboxTemplates, { namespace, name })).spec.podTemplate;
}

/** The three sandboxes, with the probe in each. */
export class Boxes implements AsyncDisposable {
  readonly #options: BoxOptions;
  readonly #boxes = new Map<BoxPlace, Sandbox>();
  readonly #ended = new Set<BoxPlace>();
  /** How many sandboxes took the place of one that was ended; part of their names. */
  #lives = 0;

  constructor(options: BoxOptions) {
    this.#options = options;
  }

  /** Makes all three at once; the policy is there before the sandbox that it is about. */
  async open(): Promise<void> {
    const { engine, signal } = this.#options;
    await engine.client.create(networkPolicies, this.#policy(), { signal });
    const places: readonly BoxPlace[] = ["prisoner", "neighbour", "confined"];
    const opened = await Promise.allSettled(places.map((place) => this.#openOne(place)));
    const failed = opened.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  #policy(): NetworkPolicy {
    const { namespace, marks } = this.#options;
    return {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: marks.confined.name, namespace },
      spec: { podSelector: { matchLabels: { [placeLabel]: marks.confined.name } }, policyTypes: ["Egress"] },
    };
  }

  async #openOne(place: BoxPlace): Promise<void> {
    const { Sandbox } = await import("@agent-sandbox/sdk/sandbox");
    const box = await Sandbox.create(this.#createOptions(place));
    this.#boxes.set(place, box);
    await this.#arm(place, box);
  }

  #createOptions(place: BoxPlace): CreateOptions {
    const { engine, namespace, image, runtime, podTemplate, memoryBytes, diskBytes, marks, signal } = this.#options;
    const { metadata, spec } = podTemplate ?? {};
    return {
      engine,
      namespace,
      name: this.#lives === 0 ? marks[place].name : `${marks[place].name}-${this.#lives}`,
      signal,
      readyTimeoutMs,
      ...(image !== undefined && { image }),
      ...(runtime !== undefined && { runtime }),
      podTemplate: {
        metadata: { ...metadata, labels: { ...metadata?.labels, [placeLabel]: marks[place].name } },
        ...(spec !== undefined && { spec }),
      },
      ...(place === "confined" && { memory: String(memoryBytes), disk: String(diskBytes) }),
    };
  }

  /** Puts the probe inside, and starts the holder of what others must not find. */
  async #arm(place: BoxPlace, box: Sandbox): Promise<void> {
    const { program, marks, port } = this.#options;
    const write = ["sh", "-c", `cat > ${programInside} && chmod 755 ${programInside}`];
    const { exitCode, stderr } = await box.run(write, { stdin: readFileSync(program) });
    if (exitCode !== 0) throw new CliError(`the probe cannot be put into the sandbox: ${stderr}`);
    const { name, key } = marks[place];
    const holding = { key, files: [`/tmp/${name}`], listen: [`:${port}`] };
    const holder = await box.spawn([programInside, "hold", name]);
    await holder.stdin.write(JSON.stringify(holding));
    await holder.stdin.end();
    for await (const _line of holder.stdout) return;
    throw new CliError("the holder inside the sandbox did not start");
  }

  /** The sandbox's address. */
  async address(place: BoxPlace): Promise<string> {
    const { addresses } = await this.#box(place).info();
    const [address] = addresses;
    if (address === undefined) throw new CliError(`sandbox ${this.#options.marks[place].name} has no address`);
    return address;
  }

  /** The name of the sandbox's node, where the engine tells it. */
  async node(place: BoxPlace): Promise<string | undefined> {
    return (await this.#box(place).info()).node;
  }

  #box(place: BoxPlace): Sandbox {
    const box = this.#boxes.get(place);
    if (box === undefined) throw new CliError(`sandbox ${this.#options.marks[place].name} was not made`);
    return box;
  }

  /** Makes attempts inside; a sandbox that does not survive them has let none through. */
  async tryAt(place: BoxPlace, attempts: readonly Attempt[], signal: AbortSignal): Promise<Outcome[]> {
    const box = await this.#living(place);
    const stop = new AbortController();
    const bounded = AbortSignal.any([signal, stop.signal, AbortSignal.timeout(tryMs)]);
    const refusals = (detail: string, unknown = false): Outcome[] =>
      attempts.map(() => ({ through: false, detail, ...(unknown && { unknown }) }));
    try {
      const running = this.#tryIn(box, attempts, bounded);
      // Who waits for an answer out of a sandbox that was ended waits for its next life too: the end is looked for besides.
      const ending = awaitEnd(this.#options.engine, box, bounded);
      running.catch(() => undefined);
      ending.catch(() => undefined);
      const answer = await Promise.race([running, ending]);
      if (typeof answer === "string" || isOverDisk(attempts, answer, this.#options.diskBytes)) this.#ended.add(place);
      return typeof answer === "string" ? refusals(answer) : answer;
    } catch (error) {
      signal.throwIfAborted();
      this.#ended.add(place);
      if (error instanceof SandboxError) return refusals(`the sandbox did not survive it: ${error.message}`);
      if (bounded.aborted) return refusals(`no answer within ${tryMs / 1000} s`, true);
      throw error;
    } finally {
      stop.abort();
    }
  }

  async #tryIn(box: Sandbox, attempts: readonly Attempt[], signal: AbortSignal): Promise<Outcome[] | string> {
    const stdin = JSON.stringify(attempts);
    const { exitCode, stdout, stderr } = await box.run([programInside, "try"], { stdin, signal });
    return exitCode === 0 ? (JSON.parse(stdout) as Outcome[]) : `the probe ended with ${exitCode} ${stderr}`.trim();
  }

  /** The sandbox, or another in its place where an attempt ended it: a node waits longer before each further start of one that keeps dying. */
  async #living(place: BoxPlace): Promise<Sandbox> {
    if (!this.#ended.delete(place)) return this.#box(place);
    await this.#box(place).delete();
    this.#lives += 1;
    await this.#openOne(place);
    return this.#box(place);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { engine, namespace, marks } = this.#options;
    await Promise.allSettled([...this.#boxes.values()].map((box) => box.delete()));
    await engine.client.delete(networkPolicies, { namespace, name: marks.confined.name }).catch(() => undefined);
  }
}
