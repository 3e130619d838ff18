import { type StoredImage, storedReference } from "./image-index.ts";

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
}

/** Shares of the disk in use above which a collection begins, and below which it ends; the kubelet's figures. */
const highShare = 0.85;
const lowShare = 0.8;

/** An image that was used this recently is kept; the kubelet's figure. */
const ageMinMs = 2 * 60_000;

/**
 * The image that goes next: the one that nobody has used for longest. Undefined: none has to, or none may. An image that was loaded from
 * an archive stays, because there may be no place to get it again.
 */
export function planCollection(question: CollectionQuestion): StoredImage | undefined {
  const { images, used, diskBytes, diskFreeBytes, isCollecting, nowMs } = question;
  const usedShare = 1 - diskFreeBytes / Math.max(1, diskBytes);
  if (usedShare < (isCollecting ? lowShare : highShare)) return undefined;
  const [oldest] = images
    .filter(
      (image) =>
        !image.isLoaded && !used.has(storedReference(image)) && nowMs - Date.parse(image.lastUsedAt) >= ageMinMs,
    )
    .toSorted((a, b) => Date.parse(a.lastUsedAt) - Date.parse(b.lastUsedAt));
  return oldest;
}
