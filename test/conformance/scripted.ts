import { readFileSync } from "node:fs";
import type { ApiCall, Json } from "./api-call.ts";
import type { Case, CaseContext } from "./suite.ts";

/** One request of a script. `$NS` and `$U` in any text stand for the case's namespace and a unique word. */
export interface Step {
  /** Method and path: `POST /api/v1/namespaces/$NS/configmaps`. */
  readonly do: string;
  readonly body?: Json;
  readonly type?: string;
  readonly accept?: string;
  readonly as?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** What of the body is compared; default all of it. `nothing` compares no part of the answer. */
  readonly show?: ((body: Json) => Json) | "nothing";
  /** Of a refusal, compares status and reason only: its words come from inside Go, and no client reads them. */
  readonly loose?: boolean;
}

/** What one step is expected to give, as a real API server gave it. */
interface Outcome {
  readonly status: number;
  readonly warning?: string;
  readonly body: Json;
}

/** A title and its steps. */
export type Script = readonly [title: string, ...steps: readonly Step[]];

/** Turns scripts into cases that compare every answer with the one recorded from a real API server in `golden/`. */
export function scripted(group: string, scripts: readonly Script[]): Case[] {
  return scripts.map(([title, ...steps]) => ({
    title,
    run: async (context) => {
      const outcomes = await play(context, steps);
      const recorder = recording.current;
      if (recorder !== undefined) {
        recorder(group, title, outcomes);
        return;
      }
      const wanted = goldenOf(group)[title];
      if (wanted === undefined) throw new Error(`golden/${group}.json has no "${title}"; record it from a cluster`);
      const different = differences(wanted, outcomes);
      if (different.length > 0) throw new Error(`differs from a real API server:\n${different.join("\n")}`);
    },
  }));
}

/** Every place where two values differ: the path, what was wanted, what came. */
function differences(wanted: Json, got: Json, path = ""): string[] {
  if (isContainer(wanted) && isContainer(got) && Array.isArray(wanted) === Array.isArray(got)) {
    const keys = new Set([...Object.keys(wanted), ...Object.keys(got)]);
    return [...keys].flatMap((key) => differences(wanted[key], got[key], `${path}/${key}`));
  }
  if (Object.is(wanted, got)) return [];
  return [`${path}: wanted ${JSON.stringify(wanted)}, got ${JSON.stringify(got)}`];
}

function isContainer(value: Json): value is Record<string, Json> {
  return typeof value === "object" && value !== null;
}

/** Set by the program that records: takes outcomes instead of comparing them. */
export const recording: {
  current: ((group: string, title: string, outcomes: readonly Outcome[]) => void) | undefined;
} = { current: undefined };

const goldens = new Map<string, Readonly<Record<string, readonly Outcome[]>>>();

function goldenOf(group: string): Readonly<Record<string, readonly Outcome[]>> {
  const known = goldens.get(group);
  if (known !== undefined) return known;
  const text = readFileSync(new URL(`golden/${group}.json`, import.meta.url), "utf8");
  const read = JSON.parse(text) as Record<string, Outcome[]>;
  goldens.set(group, read);
  return read;
}

async function play(context: CaseContext, steps: readonly Step[]): Promise<Outcome[]> {
  const namespace = JSON.stringify(steps).includes("$NS") ? await context.namespace() : "";
  const word = context.unique("u");
  const fill = (text: string): string => text.replaceAll("$NS", namespace).replaceAll("$U", word);
  const outcomes: Outcome[] = [];
  for (const step of steps) {
    const outcome = await playStep(context.api, step, fill);
    if (step.show !== "nothing") outcomes.push(masked(outcome, namespace, word));
  }
  // What JSON cannot carry must not make a difference either.
  return JSON.parse(JSON.stringify(outcomes)) as Outcome[];
}

async function playStep(api: ApiCall, step: Step, fill: (text: string) => string): Promise<Outcome> {
  const [method = "", path = ""] = fill(step.do).split(" ");
  const body = step.body === undefined ? undefined : fill(asText(step.body));
  const answer = await api.call(method, path, {
    ...(body !== undefined && { body }),
    ...(step.type !== undefined && { type: step.type }),
    ...(step.accept !== undefined && { accept: step.accept }),
    ...(step.as !== undefined && { as: step.as }),
    headers: { "user-agent": "conformance/1", ...step.headers },
  });
  const whole = answer.body ?? answer.text;
  const warning = answer.headers["warning"];
  return {
    status: answer.status,
    ...(warning !== undefined && { warning }),
    body: shown(step, answer.status, whole),
  };
}

function shown({ show, loose }: Step, status: number, whole: Json): Json {
  if (status >= 300) return loose === true ? { reason: whole?.reason } : whole;
  return typeof show === "function" ? show(whole) : whole;
}

function asText(body: Json): string {
  return typeof body === "string" ? body : JSON.stringify(body);
}

const maskedKeys = new Set([
  "uid",
  "resourceVersion",
  "creationTimestamp",
  "deletionTimestamp",
  "time",
  "lastTransitionTime",
  "continue",
  "clusterIP",
  "clusterIPs",
  "nodePort",
]);

/** Replaces what differs from run to run by its name. */
function masked(value: Json, namespace: string, word: string): Json {
  const inner = (part: Json, key: string): Json => {
    if (part === undefined || part === null || typeof part === "number" || typeof part === "boolean") return part;
    if (key === "continue" && part === "") return undefined;
    if (maskedKeys.has(key) && part !== "") return `<${key}>`;
    if (typeof part === "string") return maskText(part, namespace, word);
    if (key === "managedFields") return orderedOwners(part as Json[]).map((owner) => inner(owner, ""));
    if (Array.isArray(part)) return part.map((element) => inner(element, ""));
    const entries = Object.entries(part as Record<string, Json>);
    return Object.fromEntries(entries.map(([name, member]) => [maskText(name, namespace, word), inner(member, name)]));
  };
  return inner(value, "");
}

/** Entries are ordered by their time, which two writes of one second share. */
function orderedOwners(owners: readonly Json[]): Json[] {
  const key = ({ manager, operation, subresource = "" }: Json): string => `${manager}/${operation}/${subresource}`;
  const timeless = owners.map(({ time: _time, ...owner }) => owner);
  return timeless.sort((a, b) => key(a).localeCompare(key(b)));
}

function maskText(text: string, namespace: string, word: string): string {
  const known = (namespace === "" ? text : text.replaceAll(namespace, "$NS")).replaceAll(word, "$U");
  return (
    known
      .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "<uid>")
      // Messages quote whole objects, as text in text.
      .replaceAll(/(resourceVersion\\*":\\*")\d+/g, "$1<version>")
      .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "<time>")
      .replaceAll(/(using \S+) at <time>/g, "$1")
      .replaceAll(/(kube-api-access-)\w{5}\b/g, "$1<suffix>")
      .replaceAll(/\b(generated-)\w{5}\b/g, "$1<suffix>")
  );
}
