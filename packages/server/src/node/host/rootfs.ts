/** What a root file system is made of. Exactly one of `layers`, `hostUsr` and `spare` is given. */
export interface PrepareRootfsRequest {
  /** Name of this root file system: `idPattern`. One per container. */
  readonly id: string;
  /** diffIds, lowest first. */
  readonly layers?: readonly string[];
  /** The built-in image: this machine's /usr without /usr/local, read-only, with a synthetic /etc, /bin, /lib, /home, /tmp, ... */
  readonly hostUsr?: boolean;
  /** Size limit of the writable layer (a sparse ext4 image). Fixed by the first call for a `keepKey`; a larger value grows it. */
  readonly writableBytes: number;
  /** Names the writable layer; it outlives `releaseRootfs` and is found again by the next `prepareRootfs` with this key. Default: none, deleted on release. */
  readonly keepKey?: string;
  /** A writable layer and nothing under it, made ahead for the root file system that names it in `writableFrom`. */
  readonly spare?: boolean;
  /** A spare to take the writable layer from where there is none yet; one of another size is not taken. Once taken it is gone. */
  readonly writableFrom?: string;
}

/** A mounted root file system. */
export interface Rootfs {
  readonly id: string;
  /** Absolute path of the mount, for diagnosis; containers name it by `id`. */
  readonly path: string;
  readonly keepKey?: string;
  /** Identity of what it was made of: the digest of the layer list, or of the `host` tree (changes when packages of the machine change). */
  readonly sourceDigest: string;
  /** How full the writable layer is; `listRootfs` tells, of what is mounted. */
  readonly writable?: { readonly sizeBytes: number; readonly usedBytes: number };
}

/** One kept or live writable layer. */
export interface WritableLayer {
  readonly key: string;
  readonly sizeBytes: number;
  readonly usedBytes: number;
  readonly mounted: boolean;
}
