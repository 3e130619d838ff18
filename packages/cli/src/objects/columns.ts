import type { EventsEvent, Node, Pod } from "@agent-sandbox/api/builtin.gen";
import type { KubeObject } from "@agent-sandbox/api/meta";
import type { Sandbox } from "@agent-sandbox/api/sandbox";
import type { SandboxClaim } from "@agent-sandbox/api/sandbox-claim";
import type { SandboxTemplate } from "@agent-sandbox/api/sandbox-template";
import type { SandboxWarmPool } from "@agent-sandbox/api/sandbox-warm-pool";
import { sandboxInfo } from "@agent-sandbox/sdk/control/sandbox-info";
import { formatAge } from "../age.ts";

/** One column of a table. */
export interface Column {
  readonly title: string;
  /** Shown with `-o wide` only. */
  readonly isWide?: boolean;
  readonly cell: (object: KubeObject, nowMs: number) => string;
}

const name: Column = { title: "NAME", cell: ({ metadata }) => metadata.name ?? "" };
const age: Column = { title: "AGE", cell: ({ metadata }, nowMs) => ageOf(metadata.creationTimestamp, nowMs) };

/** The columns of a kind; name and age for those without any of their own. */
export function columnsOf(kind: string): readonly Column[] {
  return [name, ...(ownColumns[kind] ?? []), age];
}

function column<T extends KubeObject>(
  title: string,
  cell: (object: T, nowMs: number) => string,
  isWide = false,
): Column {
  return { title, cell: (object, nowMs) => cell(object as T, nowMs), ...(isWide && { isWide }) };
}

const ownColumns: Readonly<Record<string, readonly Column[]>> = {
  Sandbox: [
    column<Sandbox>("STATE", (object) => sandboxInfo(object).state),
    column<Sandbox>("IMAGE", (object) => shortImage(sandboxInfo(object).image)),
    column<Sandbox>("ENDS IN", ({ spec }, nowMs) =>
      spec.shutdownTime === undefined ? "-" : formatAge(Date.parse(spec.shutdownTime) - nowMs),
    ),
    column<Sandbox>("ADDRESS", ({ status }) => status?.podIPs?.[0] ?? "-", true),
    column<Sandbox>("NODE", ({ status }) => status?.nodeName ?? "-", true),
    column<Sandbox>("MESSAGE", (object) => sandboxInfo(object).message, true),
  ],
  SandboxClaim: [
    column<SandboxClaim>("POOL", ({ spec }) => spec.warmPoolRef.name),
    column<SandboxClaim>("READY", ({ status }) => readyOf(status?.conditions)),
    column<SandboxClaim>("SANDBOX", ({ status }) => status?.sandbox?.name ?? "-"),
  ],
  SandboxWarmPool: [
    column<SandboxWarmPool>("TEMPLATE", ({ spec }) => spec.sandboxTemplateRef.name),
    column<SandboxWarmPool>("READY", ({ spec, status }) => `${status?.readyReplicas ?? 0}/${spec.replicas ?? 1}`),
  ],
  SandboxTemplate: [
    column<SandboxTemplate>("IMAGE", ({ spec }) => shortImage(spec.podTemplate.spec.containers?.[0]?.image ?? "-")),
  ],
  Pod: [
    column<Pod>("PHASE", ({ status }) => status?.phase ?? "-"),
    column<Pod>("ADDRESS", ({ status }) => status?.podIP ?? "-"),
    column<Pod>("NODE", ({ spec }) => spec?.nodeName ?? "-", true),
  ],
  Node: [column<Node>("READY", ({ status }) => readyOf(status?.conditions))],
  Event: [
    column<EventsEvent>("TYPE", ({ type }) => type ?? ""),
    column<EventsEvent>("REASON", ({ reason }) => reason ?? ""),
    column<EventsEvent>("OBJECT", ({ regarding }) => `${regarding?.kind ?? ""}/${regarding?.name ?? ""}`),
    column<EventsEvent>("NOTE", ({ note }) => note ?? ""),
  ],
};

function readyOf(conditions: readonly { readonly type?: string; readonly status?: string }[] | undefined): string {
  return conditions?.find(({ type }) => type === "Ready")?.status ?? "-";
}

function shortImage(image: string): string {
  return image === "host.agent-sandbox.local/usr" ? "host" : image;
}

function ageOf(time: string | undefined, nowMs: number): string {
  return time === undefined ? "-" : formatAge(nowMs - Date.parse(time));
}
