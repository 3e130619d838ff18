/** What an image says about the processes that run in it. */
export interface ImageConfig {
  readonly entrypoint: readonly string[];
  readonly cmd: readonly string[];
  readonly env: readonly string[];
  /** As written: empty, `name`, `uid`, `name:group` or `uid:gid`. */
  readonly user: string;
  readonly workingDir: string;
  readonly stopSignal?: string;
}

/** An image whose layers are unpacked and can be stacked. */
export interface ReadyImage {
  /** Digest of the image's configuration: the identity of its content. */
  readonly id: string;
  /** `repository@sha256:...`, or the id for an image that came from no registry. */
  readonly reference: string;
  readonly config: ImageConfig;
  /** diffIds, lowest first; absent for the built-in image. */
  readonly layers?: readonly string[];
  readonly isHostUsr: boolean;
  readonly sizeBytes: number;
}

/** How far the node is with an image that a container wants. */
export type ImageState =
  | { readonly kind: "absent" }
  | { readonly kind: "pulling" }
  | { readonly kind: "ready"; readonly image: ReadyImage }
  | {
      readonly kind: "failed";
      /** ErrImagePull right after a failure, ImagePullBackOff while waiting for the next try. */
      readonly reason: "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName";
      readonly message: string;
      /** Absent: trying again cannot help. */
      readonly retryAtMs?: number;
    };
