import { tryParseGoDuration } from "@agent-sandbox/api";
import { type CollectionLimits, collectionDefaults } from "../node/images/plan-collection.ts";

/** The flags that say when unused images go, as typed; undefined is the default. Both commands call them as the kubelet does. */
export interface ImageLimitFlags {
  readonly imageGcHighThreshold?: number | string | undefined;
  readonly imageGcLowThreshold?: number | string | undefined;
  /** Milliseconds, or text such as `2m`. */
  readonly minimumImageTtlDuration?: number | string | undefined;
}

/** Either the limits, or everything that is wrong with the flags. */
export function imageLimits(flags: ImageLimitFlags): { limits: CollectionLimits; errors: readonly string[] } {
  const { imageGcHighThreshold, imageGcLowThreshold, minimumImageTtlDuration } = flags;
  const limits: CollectionLimits = {
    highPercent: Number(imageGcHighThreshold ?? collectionDefaults.highPercent),
    lowPercent: Number(imageGcLowThreshold ?? collectionDefaults.lowPercent),
    ageMinMs: milliseconds(minimumImageTtlDuration ?? collectionDefaults.ageMinMs) ?? Number.NaN,
  };
  const { highPercent, lowPercent, ageMinMs } = limits;
  const errors: string[] = [];
  for (const [flag, percent] of [
    ["--image-gc-high-threshold", highPercent],
    ["--image-gc-low-threshold", lowPercent],
  ] as const) {
    if (!Number.isInteger(percent) || percent < 0 || percent > 100) errors.push(`${flag} is not between 0 and 100`);
  }
  if (errors.length === 0 && lowPercent >= highPercent)
    errors.push("--image-gc-low-threshold must be less than --image-gc-high-threshold");
  if (!(ageMinMs >= 0)) errors.push("--minimum-image-ttl-duration is not a duration such as 2m");
  return { limits, errors };
}

function milliseconds(duration: number | string): number | undefined {
  return typeof duration === "number" ? duration : tryParseGoDuration(duration);
}
