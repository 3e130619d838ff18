import type { NetworkPolicy, Sandbox } from "@agent-sandbox/api";
import type { ColdReason } from "../controller-metrics.ts";
import type { SandboxPatch } from "./transfer.ts";

/** Metadata of a merge patch of the claim; a `resourceVersion` in it makes the write fail when the claim has changed. */
export type ClaimPatch = Readonly<Record<string, unknown>>;

/** Why a reservation was found void, as the condition says it. */
export type VoidReason = "deleted" | "lost to another owner";

/** What a plan may ask for. Every write carries all it needs: carrying it out takes no decision. */
export type ClaimAction =
  /** Versions before templates had network policies made one per claim. */
  | { readonly do: "remove-legacy-policy"; readonly policy: NetworkPolicy }
  /** The cache cannot be relied on here: the server is asked. */
  | { readonly do: "read-claim" }
  | { readonly do: "read-sandbox"; readonly name: string }
  /** Members of the warm queue that turned out not to be any, by key. */
  | { readonly do: "drop-members"; readonly keys: readonly string[] }
  /** The marks of first sight before a cold start, which also prove that the claim is current. */
  | { readonly do: "mark-claim"; readonly metadata: ClaimPatch }
  /** First write of an adoption: the claim names the member, which other claims are not offered meanwhile. */
  | { readonly do: "reserve"; readonly key: string; readonly poolUid: string; readonly metadata: ClaimPatch }
  /** Second write of an adoption: the Sandbox becomes the claim's. */
  | { readonly do: "transfer"; readonly name: string; readonly patch: SandboxPatch }
  | {
      readonly do: "clear-reservation";
      readonly name: string;
      readonly why: VoidReason;
      readonly metadata: ClaimPatch;
    }
  /** The label of older versions becomes the annotation. */
  | { readonly do: "migrate-reservation"; readonly metadata: ClaimPatch }
  /** Sandboxes from before the label existed get it once. */
  | { readonly do: "label-launch-type"; readonly name: string; readonly patch: SandboxPatch }
  /** Edits of the claim's metadata reach its Sandbox. */
  | { readonly do: "sync-metadata"; readonly name: string; readonly patch: SandboxPatch }
  | {
      readonly do: "create-sandbox";
      readonly sandbox: Sandbox;
      readonly poolName: string;
      readonly reason: ColdReason;
    }
  | { readonly do: "delete-sandbox"; readonly sandbox: Sandbox }
  | { readonly do: "delete-claim"; readonly policy: "Delete" | "DeleteForeground" };

/** What became of an action. Anything but `done` ends the plan it belongs to, and the pass plans again. */
export type ActionOutcome =
  | { readonly kind: "done" }
  /** Another claim holds the member. */
  | { readonly kind: "member-leased" }
  /** The write went by an old version of the claim; the newest has been read, if there still is one. */
  | { readonly kind: "claim-changed" }
  /** The Sandbox has another version, is gone, or another has its name; it has been read again. */
  | { readonly kind: "sandbox-changed" }
  /** The API refused for any other reason, or did not answer. */
  | { readonly kind: "failed"; readonly error: unknown };
