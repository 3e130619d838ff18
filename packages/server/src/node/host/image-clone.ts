/** What has an image of its own on the disk: a kept writable layer by its key, a volume, or an emptyDir that is not in memory. */
export type ImageKind = "writable" | "volume" | "empty-dir";

/** An image to make of another one. */
export interface CloneImageRequest {
  readonly kind: ImageKind;
  /** The one that is copied. */
  readonly from: string;
  readonly to: string;
  /** How long its writers may wait, 1 to 600000; a reflink takes milliseconds where the file system can. Nobody waits where its sandbox is paused. */
  readonly pauseMaxMs: number;
}

/** How an image was cloned. */
export interface ClonedImage {
  /** How long writers waited. */
  readonly pausedMs: number;
  /** `reflink`: it shares its blocks with the original until one of them changes. */
  readonly copy: "reflink" | "copy";
  /** What it has on the disk, shared or not. */
  readonly usedBytes: number;
}
