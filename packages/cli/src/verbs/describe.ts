import { ignore } from "@agent-sandbox/api/api-error";
import type { EventsEvent, Pod } from "@agent-sandbox/api/builtin.gen";
import { annotations } from "@agent-sandbox/api/labels";
import type { Condition, KubeObject } from "@agent-sandbox/api/meta";
import { events, pods } from "@agent-sandbox/api/resource";
import type { Engine } from "@agent-sandbox/sdk";
import { formatAge } from "../age.ts";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
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
    reason,
    formatAge(context.nowMs() - Date.parse(lastTransitionTime)),
    message,
  ]);
  return `Conditions\n${indent(formatTable(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], rows).trimEnd())}\n`;
}

function podLines(pod: Pod): string[] {
  const states = (pod.status?.containerStatuses ?? []).map(({ name, state, restartCount }) => {
    const { waiting, running, terminated } = state ?? {};
    const waits = waiting === undefined ? undefined : `waiting: ${waiting.reason ?? ""} ${waiting.message ?? ""}`;
    const ended =
      terminated === undefined ? undefined : `ended with ${terminated.exitCode}: ${terminated.reason ?? ""}`;
    return `  container ${name}: ${waits ?? ended ?? (running === undefined ? "unknown" : "running")}, restarts ${restartCount}`;
  });
  return [
    `Pod ${pod.metadata.name ?? ""}: ${pod.status?.phase ?? ""}, ${pod.status?.podIP ?? "no address"}`,
    ...states,
    "",
  ];
}

async function podOf({ client }: Engine, { metadata }: Described): Promise<Pod | undefined> {
  const name = metadata.annotations?.[annotations.podName] ?? metadata.name ?? "";
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
