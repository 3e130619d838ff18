import { isHostImage } from "@agent-sandbox/api";
import type { Clock } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import { ImageError } from "./image-error.ts";
import type { StoredImage } from "./image-index.ts";
import { parseImageName } from "./image-name.ts";
import type { ImageState } from "./image-state.ts";
import type { ImageStore } from "./image-store.ts";
import { type PullProgress, pullImage } from "./pull-image.ts";
import type { RegistryCredentials } from "./registry-auth.ts";
import type { Fetch } from "./registry-client.ts";
import type { RegistrySettings } from "./registry-settings.ts";

/** First wait after a failed pull; the kubelet's figure. */
const backoffFirstMs = 10_000;

/** A helper that was killed is back within this; it is no fault of the image's. */
const helperAwayMs = 1_000;

/** Longest wait between pulls; the kubelet's figure. */
const backoffMaxMs = 300_000;

/** Progress is an Event when another quarter is there, and no sooner than this after the last one. */
const progressEveryMs = 2_000;

/** What one container wants. */
export interface WantedImage {
  /** Names the wish: one container of one pod. */
  readonly key: string;
  readonly reference: string;
  readonly policy: "Always" | "IfNotPresent" | "Never";
  readonly credentials: readonly ReadonlyMap<string, RegistryCredentials>[];
}

/** What happened to a wish, for events. */
export type PullEvent =
  | { readonly kind: "pulling" }
  | { readonly kind: "progress"; readonly progress: PullProgress }
  | { readonly kind: "present" }
  | { readonly kind: "pulled"; readonly durationMs: number; readonly sizeBytes: number }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "back-off" };

/** The puller's parts. */
export interface ImagePullerOptions {
  readonly store: ImageStore;
  readonly clock: Clock;
  readonly architecture: string;
  /** Read for every pull. */
  readonly settings: () => Promise<RegistrySettings>;
  readonly fetch: Fetch;
  readonly onChange: (key: string, event: PullEvent) => void;
  readonly signal: AbortSignal;
}

interface Wish {
  state: ImageState;
  failures: number;
}

/** Brings images that containers want, in the background, each wish with its own back-off. */
export class ImagePuller {
  readonly #options: ImagePullerOptions;
  readonly #wishes = new Map<string, Wish>();
  readonly #underway = new Set<Promise<void>>();

  constructor(options: ImagePullerOptions) {
    this.#options = options;
  }

  /** How far a wish is; a failed one that is due again reads as absent, so that it is asked for again. */
  state(key: string): ImageState {
    const wish = this.#wishes.get(key);
    if (wish === undefined) return { kind: "absent" };
    const { state } = wish;
    if (state.kind !== "failed" || state.retryAtMs === undefined) return state;
    return this.#options.clock.nowMs() >= state.retryAtMs ? { kind: "absent" } : state;
  }

  /** References of the images that are ready for a container which may not have started yet. */
  readyReferences(): string[] {
    return [...this.#wishes.values()].flatMap(({ state }) => (state.kind === "ready" ? [state.image.reference] : []));
  }

  /** Begins to bring an image, unless that is under way. Resolves at once, or when it is ready if it is on this machine already. */
  want(image: WantedImage): Promise<void> {
    const wish = this.#wishes.get(image.key) ?? { state: { kind: "absent" }, failures: 0 };
    this.#wishes.set(image.key, wish);
    if (wish.state.kind === "pulling" || wish.state.kind === "ready") return Promise.resolve();
    wish.state = { kind: "pulling" };
    const run = this.#bring(image, wish).finally(() => this.#underway.delete(run));
    this.#underway.add(run);
    return this.#isAtHand(image) ? run : Promise.resolve();
  }

  #isAtHand({ reference, policy }: WantedImage): boolean {
    return isHostImage(reference) || (policy !== "Always" && this.#options.store.isUnpacked(reference));
  }

  /** Forgets the wishes of a pod. */
  forget(prefix: string): void {
    for (const key of this.#wishes.keys()) if (key.startsWith(prefix)) this.#wishes.delete(key);
  }

  /** Resolves when no pull is under way; for an orderly stop. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#underway);
  }

  async #bring(image: WantedImage, wish: Wish): Promise<void> {
    const { clock, onChange, signal } = this.#options;
    try {
      const { event, state } = await this.#obtain(image);
      wish.state = state;
      wish.failures = 0;
      onChange(image.key, event);
    } catch (error) {
      if (signal.aborted) return;
      const isHelperAway = error instanceof HostError && error.code === "unavailable";
      if (!isHelperAway) wish.failures += 1;
      const backoffMs = Math.min(backoffMaxMs, backoffFirstMs * 2 ** Math.min(wish.failures - 1, 10));
      const delayMs = isHelperAway ? helperAwayMs : backoffMs;
      // A full disk is as good a reason to try again later as a registry that is down.
      const message = error instanceof Error ? error.message : String(error);
      const isName = error instanceof ImageError && error.code === "invalid-name";
      wish.state = isName
        ? { kind: "failed", reason: "InvalidImageName", message }
        : { kind: "failed", reason: reasonOf(image), message, retryAtMs: clock.nowMs() + delayMs };
      onChange(image.key, { kind: "failed", message });
      if (!isName && !isHelperAway) this.#announceBackoff(image, wish);
    }
  }

  /** The first failure shows as ErrImagePull; a moment later it shows that the node waits. */
  #announceBackoff(image: WantedImage, wish: Wish): void {
    this.#options.clock.setTimer(1_000, () => {
      const { state } = wish;
      if (state.kind !== "failed" || this.#wishes.get(image.key) !== wish) return;
      wish.state = {
        ...state,
        reason: "ImagePullBackOff",
        message: `Back-off pulling image "${image.reference}": ${state.message}`,
      };
      this.#options.onChange(image.key, { kind: "back-off" });
    });
  }

  async #obtain(image: WantedImage): Promise<{ event: PullEvent; state: ImageState }> {
    const { store, clock, signal, onChange } = this.#options;
    if (isHostImage(image.reference)) {
      return { event: { kind: "present" }, state: { kind: "ready", image: await store.hostImage() } };
    }
    parseImageName(image.reference);
    const stored = store.find(image.reference);
    const isFresh = stored !== undefined && (image.policy !== "Always" || stored.isLoaded || stored.name.includes("@"));
    if (stored !== undefined && isFresh) {
      return { event: { kind: "present" }, state: { kind: "ready", image: await store.prepare(stored, signal) } };
    }
    if (image.policy === "Never") {
      throw new ImageError(
        "not-found",
        `Container image "${image.reference}" is not present with pull policy of Never`,
      );
    }
    const startMs = clock.nowMs();
    onChange(image.key, { kind: "pulling" });
    const onProgress = this.#progressTeller(image.key);
    const pulled = await this.pull({ ...image, onProgress, signal });
    const ready = await store.prepare(pulled, signal);
    const event: PullEvent = { kind: "pulled", durationMs: clock.nowMs() - startMs, sizeBytes: pulled.sizeBytes };
    return { event, state: { kind: "ready", image: ready } };
  }

  /** Fetches an image into the store with the operator's mirrors and credentials besides those given. */
  async pull(request: DirectPull): Promise<StoredImage> {
    const { store, architecture, fetch, settings } = this.#options;
    const registries = await settings();
    const credentials = [...(request.credentials ?? []), registries.credentials];
    return pullImage({ ...request, store, architecture, fetch, registries, credentials });
  }

  #progressTeller(key: string): (progress: PullProgress) => void {
    const { clock, onChange } = this.#options;
    let toldMs = clock.nowMs();
    let toldQuarter = 0;
    return (progress) => {
      const quarter = Math.floor((4 * progress.doneBytes) / Math.max(1, progress.totalBytes));
      if (quarter <= toldQuarter || quarter >= 4 || clock.nowMs() - toldMs < progressEveryMs) return;
      toldMs = clock.nowMs();
      toldQuarter = quarter;
      onChange(key, { kind: "progress", progress });
    };
  }
}

/** A pull that containers wait for. */
export interface DirectPull {
  readonly reference: string;
  readonly credentials?: readonly ReadonlyMap<string, RegistryCredentials>[];
  readonly onProgress?: (progress: PullProgress) => void;
  readonly signal: AbortSignal;
}

function reasonOf({ policy }: WantedImage): "ErrImageNeverPull" | "ErrImagePull" {
  return policy === "Never" ? "ErrImageNeverPull" : "ErrImagePull";
}
