import { type ImageReference, parseImageReference } from "@agent-sandbox/api";
import { ImageError } from "./image-error.ts";

/** Reads an image's name with docker's defaults; what is none is the user's mistake. */
export function parseImageName(reference: string): ImageReference {
  try {
    return parseImageReference(reference);
  } catch (cause) {
    throw new ImageError("invalid-name", `invalid image name ${JSON.stringify(reference)}`, { cause });
  }
}
