import { ignore } from "@agent-sandbox/api/api-error";
import type { EventsEvent, Pod } from "@agent-sandbox/api/builtin.gen";
import { type CrashLoop, crashLoopOf } from "@agent-sandbox/api/crash-loop";
import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys } from "@agent-sandbox/api/labels";
import { sandboxCost } from "@agent-sandbox/api/memory-use";
import type { Condition, KubeObject } from "@agent-sandbox/api/meta";
import { events, pods } from "@agent-sandbox/api/resource";
import { servicesOf } from "@agent-sandbox/api/services";
import type { Engine } from "@agent-sandbox/sdk";
import { formatAge } from "../age.ts";
import { formatBytes } from "../bytes.ts";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { asleepFor, bytesOrDash } from "../objects/columns.ts";
import { formatTable } from "../output/table.ts";
import { namedObjects, readTarget } from "./get.ts";

type Described = KubeObject & {
  readonly spec?: unknown;
  readonly status?: { readonly conditions?: readonly Condition[] };
};

/** Explains an object. */
export const describeVerb: Verb = async (context, args, flags) => {
  const { kind, names } = readTarget(args);
  if (names.length === 0) throw usageError("name what to describe");
  const engine = await openEngine(flags as EngineFlags);
  for (const object of (await namedObjects(context, engine, kind, names)) as Described[]) {
    const pod = kind.resource.kind === "Sandbox" ? await podOf(engine, object) : undefined;
    const related = [object.metadata.uid, pod?.metadata.uid].filter((uid) => uid !== undefined);
    context.stdout.write(
      [
        heading(context, object),
        ...(await specLines(object)),
        conditionsOf(context, object.status?.conditions ?? []),
        ...costLines(context, object),
        ...serviceLines(object),
        ...(pod === undefined ? [] : podLines(pod)),
        await eventsOf(context, engine, object, related),
      ].join("\n"),
    );
  }
};

function heading(context: Context, { kind, metadata }: Described): string {
  const age = formatAge(context.nowMs() - Date.parse(metadata.creationTimestamp ?? ""));
  const pairs = (map: Record<string, string> = {}): string =>
    Object.entries(map)
      .map(([key, value]) => `${key}=${value}`)
      .join(", ") || "-";
  return [
    `${kind} ${metadata.namespace === undefined ? "" : `${metadata.namespace}/`}${metadata.name ?? ""}`,
    `  uid     ${metadata.uid ?? ""}`,
    `  age     ${age}`,
    `  labels  ${pairs(metadata.labels)}`,
    "",
  ].join("\n");
}

async function specLines({ spec }: Described): Promise<string[]> {
  if (spec === undefined) return [];
  const { stringify } = await import("yaml");
  return ["Spec", indent(stringify(spec, { lineWidth: 0 }).trimEnd()), ""];
}

function conditionsOf(context: Context, conditions: readonly Condition[]): string {
  if (conditions.length === 0) return "Conditions: none\n";
  const rows = conditions.map(({ type, status, reason, message, lastTransitionTime }) => [
    type,
    status,
    // Pods' conditions may leave both out.
    reason ?? "",
    formatAge(context.nowMs() - Date.parse(lastTransitionTime)),
    message ?? "",
  ]);
  return `Conditions\n${indent(formatTable(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], rows).trimEnd())}\n`;
}

/** What a Sandbox takes of memory, how deep it sleeps and what was saved of it; nothing for other kinds. */
function costLines(context: Context, object: Described): string[] {
  if (object.kind !== "Sandbox") return [];
  const sandbox = object as Sandbox;
  const { residentBytes, sharedBytes, asleepSinceMs, freedBytes } = sandboxCost(sandbox);
  const memory = [
    "Memory",
    `  resident  ${bytesOrDash(residentBytes)}`,
    `  shared    ${bytesOrDash(sharedBytes)}`,
    ...(asleepSinceMs === undefined ? [] : [`  freed     ${formatBytes(freedBytes)} by sleep`]),
    "",
  ];
  return [...memory, ...sleepLines(context, sandbox)];
}

function sleepLines(context: Context, sandbox: Sandbox): string[] {
  const { sleep } = sandbox.status ?? {};
  const { asleepSinceMs, phase } = sandboxCost(sandbox);
  if (sleep === undefined && asleepSinceMs === undefined) return [];
  const bytes = sleep?.savedBytes === undefined ? "" : `, ${formatBytes(sleep.savedBytes)}`;
  const saved = sleep?.savedAt === undefined ? "nothing" : `${sleep.savedAt}${bytes}`;
  return [
    "Sleep",
    `  rung      ${sleep?.rung ?? "Stop"}, ${phase}`,
    `  asleep    ${asleepFor(sandbox, context.nowMs())}`,
    `  saved     ${saved}`,
    "",
  ];
}

function serviceLines({ metadata }: Described): string[] {
  const services = servicesOf(metadata);
  if (services.length === 0) return [];
  return ["Services", ...services.map(({ name, command }) => `  ${name}: ${command.join(" ")}`), ""];
}

function podLines(pod: Pod): string[] {
  const crash = crashLoopOf(pod);
  const states = (pod.status?.containerStatuses ?? []).flatMap(({ name, state, restartCount }) => {
    const { waiting, running, terminated } = state ?? {};
    const waits = waiting === undefined ? undefined : `waiting: ${waiting.reason ?? ""} ${waiting.message ?? ""}`;
    const ended =
      terminated === undefined ? undefined : `ended with ${terminated.exitCode}: ${terminated.reason ?? ""}`;
    const how = waits ?? ended ?? (running === undefined ? "unknown" : "running");
    return [
      `  container ${name}: ${how}, restarts ${restartCount}`,
      ...(crash?.container === name ? crashLines(crash) : []),
    ];
  });
  return [
    `Pod ${pod.metadata.name ?? ""}: ${pod.status?.phase ?? ""}, ${pod.status?.podIP ?? "no address"}`,
    ...states,
    "",
  ];
}

function crashLines({ exitCode, finishedAt, lastLines }: CrashLoop): string[] {
  const printed = lastLines.length === 0 ? " and had printed nothing" : "; its last lines:";
  return [
    `    ended with exit code ${exitCode} at ${finishedAt}${printed}`,
    ...lastLines.map((line) => `      ${line}`),
  ];
}

async function podOf({ client }: Engine, { metadata }: Described): Promise<Pod | undefined> {
  const name = metadata.annotations?.[annotationKeys.podName] ?? metadata.name ?? "";
  return client.get(pods, { namespace: metadata.namespace ?? "", name }).catch(ignore("NotFound"));
}

async function eventsOf(
  context: Context,
  { client }: Engine,
  { metadata }: Described,
  uids: readonly string[],
): Promise<string> {
  const options = metadata.namespace === undefined ? {} : { namespace: metadata.namespace };
  const { items } = await client.list(events, options);
  const rows = items
    .filter(({ regarding }) => uids.includes(regarding?.uid ?? ""))
    .map((event) => ({ event, atMs: Date.parse(timeOf(event)) }))
    .sort((a, b) => a.atMs - b.atMs)
    .map(({ event, atMs }) => [
      formatAge(context.nowMs() - atMs),
      event.type ?? "",
      event.reason ?? "",
      `${event.regarding?.kind ?? ""}`,
      event.note ?? "",
    ]);
  if (rows.length === 0) return "Events: none\n";
  return `Events\n${indent(formatTable(["AGE", "TYPE", "REASON", "OBJECT", "NOTE"], rows).trimEnd())}\n`;
}

function timeOf(event: EventsEvent): string {
  return (
    event.series?.lastObservedTime ??
    event.eventTime ??
    event.deprecatedLastTimestamp ??
    event.metadata.creationTimestamp ??
    ""
  );
}

function indent(text: string): string {
  return text.replace(/^/gm, "  ");
}
