import {
  annotationKeys,
  isControlledBy,
  type Pod,
  type PodCondition,
  restoredCondition,
  restoreOf,
  runtimeVersionCondition,
  type Sandbox,
  sandboxes,
  sleepAnswer,
  sleepAnswerOf,
  standingWishOf,
  standsStill,
} from "@agent-sandbox/api";

/** What the node does next: a condition to set, nothing at all, or nothing yet. */
export type NodeMove = PodCondition | "rests" | "later";

/** A node that freezes and saves sandboxes as it is asked: late, in vain, or with answers to earlier wishes, until it is calm. */
export class SleepNode {
  readonly #random: () => number;
  /** Saved memory by the uid of its Sandbox, with the Pod that it is of. */
  readonly #saved = new Map<string, { readonly id: string; readonly podUid: string }>();
  /** Faults are over: everything that is asked for is done. */
  isCalm = false;

  constructor(random: () => number) {
    this.#random = random;
  }

  /** Whether the Pod runs on a node that answers; the others are of some other kubelet. */
  static isOurs({ metadata }: Pod): boolean {
    return !(metadata.uid ?? "").endsWith("0");
  }

  /** Conditions that a Pod has from the moment it runs, or those of a start that failed. */
  starts(pod: Pod, all: readonly Sandbox[]): { readonly hasFailed: boolean; readonly conditions: PodCondition[] } {
    if (!SleepNode.isOurs(pod)) return { hasFailed: false, conditions: [] };
    const sandbox = ownerOf(pod, all);
    const conditions: PodCondition[] = [{ type: runtimeVersionCondition, status: "True", reason: "Installed" }];
    const uid = sandbox?.metadata.uid ?? "";
    const saved = this.#saved.get(uid);
    if (sandbox === undefined || saved === undefined) return { hasFailed: false, conditions };
    const isCold = sandbox.metadata.annotations?.[annotationKeys.coldStart] === saved.id;
    if (isCold || sandbox.status?.sleep?.id !== saved.id) {
      this.#saved.delete(uid);
      return { hasFailed: false, conditions };
    }
    if (this.#happens(0.2)) return { hasFailed: true, conditions: [restored("False", "RestoreFailed")] };
    const isWhole = this.#random() < 0.5;
    if (isWhole) this.#saved.delete(uid);
    return {
      hasFailed: false,
      conditions: [...conditions, isWhole ? restored("True", "Restored") : restored("False", "Restoring")],
    };
  }

  /** What happens next to a Pod that runs. */
  moves(pod: Pod, all: readonly Sandbox[]): NodeMove {
    const sandbox = ownerOf(pod, all);
    if (!SleepNode.isOurs(pod) || sandbox === undefined) return "rests";
    const uid = sandbox.metadata.uid ?? "";
    if (restoreOf(pod)?.state === "restoring") {
      if (this.#happens(0.5)) return "later";
      this.#saved.delete(uid);
      return restored("True", "Restored");
    }
    const wish = standingWishOf(sandbox, pod, this.#saved.get(uid)?.podUid === pod.metadata.uid);
    if (wish === undefined) return this.#wakes(pod, uid);
    const answer = sleepAnswerOf(pod);
    const isAnswered = answer?.id === wish.id;
    if (isAnswered && standsStill(pod)) return "rests";
    if (this.#happens(0.3)) return "later";
    if (isAnswered ? false : this.#happens(0.15)) {
      return sleepAnswer({ id: String(Number(wish.id) - 1), reason: "Saved", message: "of an earlier wish" });
    }
    if (this.#happens(0.2)) return sleepAnswer({ id: wish.id, reason: "SleepFailed", message: "no space" });
    if (wish.rung === "Freeze") return sleepAnswer({ id: wish.id, reason: "Frozen", message: "" });
    this.#saved.set(uid, { id: wish.id, podUid: pod.metadata.uid ?? "" });
    return sleepAnswer({ id: wish.id, reason: "Saved", message: "", savedBytes: 4096 });
  }

  /** What was saved is discarded before the processes go on. */
  #wakes(pod: Pod, uid: string): NodeMove {
    if (!standsStill(pod)) return "rests";
    if (this.#happens(0.3)) return "later";
    if (this.#saved.get(uid)?.podUid === pod.metadata.uid) this.#saved.delete(uid);
    return sleepAnswer({ id: "", reason: "Awake", message: "" });
  }

  #happens(probability: number): boolean {
    return !this.isCalm && this.#random() < probability;
  }
}

function ownerOf(pod: Pod, all: readonly Sandbox[]): Sandbox | undefined {
  return all.find((sandbox) => isControlledBy(pod, sandboxes, sandbox));
}

function restored(status: "True" | "False", reason: string): PodCondition {
  return { type: restoredCondition, status, reason, message: "simulated" };
}
