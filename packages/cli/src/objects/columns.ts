import type { EventsEvent, Node, Pod } from "@agent-sandbox/api/builtin.gen";
import { findCondition } from "@agent-sandbox/api/condition";
import { hostImage } from "@agent-sandbox/api/image-reference";
import type { Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api/kinds.gen";
import { sandboxCost } from "@agent-sandbox/api/memory-use";
import type { KubeObject } from "@agent-sandbox/api/meta";
import { sandboxPhase } from "@agent-sandbox/api/sandbox-phase";
import { sandboxInfo } from "@agent-sandbox/sdk/control/sandbox-info";
import { formatAge } from "../age.ts";
import { formatBytes } from "../bytes.ts";
import { type PrinterColumn, printerColumns } from "./printer-columns.gen.ts";

/** One column of a table. */
export interface Column {
  readonly title: string;
  /** Shown with `-o wide` only. */
  readonly isWide?: boolean;
  readonly cell: (object: KubeObject, nowMs: number) => string;
}

const name: Column = { title: "NAME", cell: ({ metadata }) => metadata.name ?? "" };
const age: Column = { title: "AGE", cell: ({ metadata }, nowMs) => ageOf(metadata.creationTimestamp, nowMs) };

/** The columns of a kind: its name, what only this command shows, the printer columns of its CRD, its age. */
export function columnsOf(kind: string): readonly Column[] {
  const { columns = [], covers = [] } = additions[kind] ?? {};
  const declared = (printerColumns[kind] ?? []).filter(({ title }) => !covers.includes(title));
  return [name, ...columns, ...declared.map(declaredColumn), age];
}

function declaredColumn({ title, path, isWide }: PrinterColumn): Column {
  const cell = (object: KubeObject): string => {
    const value = path.reduce<unknown>(valueAt, object);
    return typeof value === "string" || typeof value === "number" ? String(value) : "-";
  };
  return { title, isWide, cell };
}

function valueAt(value: unknown, step: PrinterColumn["path"][number]): unknown {
  if (typeof step === "string") return (value as Readonly<Record<string, unknown>> | undefined)?.[step];
  return (value as readonly { readonly type?: string }[] | undefined)?.find(({ type }) => type === step.type);
}

function column<T extends KubeObject>(
  title: string,
  cell: (object: T, nowMs: number) => string,
  isWide = false,
): Column {
  return { title, cell: (object, nowMs) => cell(object as T, nowMs), ...(isWide && { isWide }) };
}

/** What this command shows of a kind besides the printer columns. */
interface Additions {
  readonly columns: readonly Column[];
  /** Titles of printer columns that an addition says in another way: not shown. */
  readonly covers?: readonly string[];
}

const additions: Readonly<Record<string, Additions>> = {
  Sandbox: {
    columns: [
      column<Sandbox>("STATE", stateWord),
      column<Sandbox>("IMAGE", (object) => shortImage(sandboxInfo(object).image)),
      column<Sandbox>("ENDS IN", ({ spec }, nowMs) =>
        spec.shutdownTime === undefined ? "-" : formatAge(Date.parse(spec.shutdownTime) - nowMs),
      ),
      column<Sandbox>("ADDRESS", ({ status }) => status?.podIPs?.[0] ?? "-", true),
      column<Sandbox>("NODE", ({ status }) => status?.nodeName ?? "-", true),
      column<Sandbox>("RESIDENT", (object) => bytesOrDash(sandboxCost(object).residentBytes), true),
      column<Sandbox>("SHARED", (object) => bytesOrDash(sandboxCost(object).sharedBytes), true),
      column<Sandbox>("SAVED", (object) => bytesOrDash(sandboxCost(object).savedBytes), true),
      column<Sandbox>("ASLEEP", (object, nowMs) => asleepFor(object, nowMs), true),
      column<Sandbox>("MESSAGE", (object) => sandboxInfo(object).message, true),
    ],
    covers: ["READY", "REASON", "SLEEP"],
  },
  SandboxClaim: { columns: [column<SandboxClaim>("POOL", ({ spec }) => spec.warmPoolRef.name)] },
  SandboxWarmPool: {
    columns: [
      column<SandboxWarmPool>("TEMPLATE", ({ spec }) => spec.sandboxTemplateRef.name),
      column<SandboxWarmPool>("READY", ({ spec, status }) => `${status?.readyReplicas ?? 0}/${spec.replicas ?? 1}`),
    ],
    covers: ["READY", "DESIRED"],
  },
  SandboxTemplate: {
    columns: [
      column<SandboxTemplate>("IMAGE", ({ spec }) => shortImage(spec.podTemplate.spec.containers?.[0]?.image ?? "-")),
    ],
  },
  Pod: {
    columns: [
      column<Pod>("PHASE", ({ status }) => status?.phase ?? "-"),
      column<Pod>("ADDRESS", ({ status }) => status?.podIP ?? "-"),
      column<Pod>("NODE", ({ spec }) => spec?.nodeName ?? "-", true),
    ],
  },
  Node: { columns: [column<Node>("READY", ({ status }) => findCondition(status?.conditions, "Ready")?.status ?? "-")] },
  Event: {
    columns: [
      column<EventsEvent>("TYPE", ({ type }) => type ?? ""),
      column<EventsEvent>("REASON", ({ reason }) => reason ?? ""),
      column<EventsEvent>("OBJECT", ({ regarding }) => `${regarding?.kind ?? ""}/${regarding?.name ?? ""}`),
      column<EventsEvent>("NOTE", ({ note }) => note ?? ""),
    ],
  },
};

/** The state of a sandbox, and of one that sleeps, how. */
export function stateWord(object: Sandbox): string {
  const { state } = sandboxInfo(object);
  return state === "suspended" ? sandboxPhase(object).phase : state;
}

/** For how long a sandbox has been asleep; a dash while it is awake. */
export function asleepFor(object: Sandbox, nowMs: number): string {
  const { asleepSinceMs } = sandboxCost(object);
  return asleepSinceMs === undefined ? "-" : formatAge(nowMs - asleepSinceMs);
}

/** A number of bytes; a dash where it is not known. */
export function bytesOrDash(bytes: number | undefined): string {
  return bytes === undefined ? "-" : formatBytes(bytes);
}

function shortImage(image: string): string {
  return image === hostImage ? "host" : image;
}

function ageOf(time: string | undefined, nowMs: number): string {
  return time === undefined ? "-" : formatAge(nowMs - Date.parse(time));
}
