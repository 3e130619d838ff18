/** A volume with a size that is enforced: a sparse ext4 image. */
export interface EnsureVolumeRequest {
  readonly id: string;
  /** At least 1 MiB; rounded up to 4 KiB. */
  readonly sizeBytes: number;
  /** Group that owns the volume's root (fsGroup); the root is set-group-id and group-writable then. Applied on every call. */
  readonly gid?: number;
}

/** A volume on disk. */
export interface Volume {
  readonly id: string;
  readonly sizeBytes: number;
  readonly usedBytes: number;
  readonly mounted: boolean;
}

/** An emptyDir: gone with `removeEmptyDir`. */
export interface EnsureEmptyDirRequest {
  readonly id: string;
  /** Limit; without it the directory shares the data directory's space. Required for memory. */
  readonly sizeBytes?: number;
  /** Backed by memory (tmpfs). */
  readonly memory?: boolean;
  readonly gid?: number;
  /** Lets the node's group read what the sandbox writes there; other users of the host never can. */
  readonly nodeReads?: boolean;
}

/** A file of a configMap, secret, projected or downwardAPI volume. */
export interface VolumeFile {
  /** Relative, no `..`, at most 255 bytes a segment. */
  readonly path: string;
  readonly contentBase64: string;
  /** Permission bits, at most 0o777. */
  readonly mode: number;
  readonly uid?: number;
  readonly gid?: number;
}

/** Replaces the whole content of a files volume in one step (the kubelet's `..data` symlink swap), so that a reader sees all old or all new. */
export interface WriteFilesRequest {
  readonly id: string;
  readonly files: readonly VolumeFile[];
}
