import { type StoredImage, storedReference } from "./image-index.ts";

/** When unused images go. */
export interface CollectionLimits {
  /** Percent of the disk in use from which on a collection begins. */
  readonly highPercent: number;
  /** Percent below which it ends. */
  readonly lowPercent: number;
  /** An image that was used more recently is kept. */
  readonly ageMinMs: number;
}

/** The kubelet's figures. */
export const collectionDefaults: CollectionLimits = { highPercent: 85, lowPercent: 80, ageMinMs: 2 * 60_000 };

/** What a collection is decided from. */
export interface CollectionQuestion {
  readonly images: readonly StoredImage[];
  /** References of images that containers run on, or are about to. */
  readonly used: ReadonlySet<string>;
  readonly diskBytes: number;
  readonly diskFreeBytes: number;
  /** A collection is under way: it goes on below the high mark until the low one. */
  readonly isCollecting: boolean;
  readonly nowMs: number;
  readonly limits: CollectionLimits;
}

/**
 * The image that goes next: the one that no container has used for longest. Undefined: none has to, or none may. An image that was loaded from
 * an archive stays, because there may be no place to get it again.
 */
export function planCollection(question: CollectionQuestion): StoredImage | undefined {
  const { images, used, diskBytes, diskFreeBytes, isCollecting, nowMs, limits } = question;
  const usedPercent = 100 * (1 - diskFreeBytes / Math.max(1, diskBytes));
  if (usedPercent < (isCollecting ? limits.lowPercent : limits.highPercent)) return undefined;
  const [oldest] = images
    .filter(
      (image) =>
        !image.isLoaded && !used.has(storedReference(image)) && nowMs - Date.parse(image.lastUsedAt) >= limits.ageMinMs,
    )
    .toSorted((a, b) => Date.parse(a.lastUsedAt) - Date.parse(b.lastUsedAt));
  return oldest;
}
