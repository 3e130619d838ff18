import type { Pod, Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import type { ArchiveStatus } from "./archive-status.ts";

/** Everything a pass over an archive looks at. */
export interface ArchiveObserved {
  readonly archive: SandboxArchive;
  /** The Sandbox of the archive's name, which may be another than the archived one. */
  readonly sandbox: Sandbox | undefined;
  /** Every Pod that refers to that Sandbox. */
  readonly pods: readonly Pod[];
  /** The snapshot that has the name of the present attempt; another may have made it. */
  readonly snapshot: SandboxSnapshot | undefined;
  /** Snapshots that this archive made for other attempts. */
  readonly stale: readonly SandboxSnapshot[];
  readonly nowMs: number;
  /** The id that an attempt gets if one begins. */
  readonly newID: string;
}

/** What a pass decides: one write, and the next pass goes on from what is there then. */
export type ArchivePlan =
  /** Somebody else has to do something first. */
  | { readonly do: "wait" }
  /** Finalizer and owners, before anything is made outside. */
  | { readonly do: "prepare"; readonly metadata: Readonly<Record<string, unknown>> }
  /** Written only if nobody has written the archive since it was read. */
  | { readonly do: "tell"; readonly status: ArchiveStatus }
  /** Of the Sandbox, or with `recallOf` out of the archive. */
  | { readonly do: "make-snapshot"; readonly name: string; readonly recallOf?: string }
  | { readonly do: "delete-snapshot"; readonly snapshot: SandboxSnapshot }
  /** Only this very version of the Sandbox. */
  | { readonly do: "delete-sandbox"; readonly sandbox: Sandbox }
  | { readonly do: "make-sandbox"; readonly sandbox: Sandbox }
  /** The Sandbox stays: a deletion that carries its earlier version fails from then on, and the attempt is discarded. */
  | { readonly do: "call-off"; readonly sandbox: Sandbox; readonly status: ArchiveStatus }
  /** Only this version of the archive. */
  | { readonly do: "delete-archive" }
  /** The finalizer goes. */
  | { readonly do: "release" };
