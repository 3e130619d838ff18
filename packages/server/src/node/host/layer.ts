/** A layer blob to unpack. */
export interface UnpackLayerRequest {
  /** Path of the blob, relative to the node's directory (`images/blobs/sha256/<hex>`). */
  readonly blobPath: string;
  /** `sha256:<64 hex>` of the blob as stored; checked while reading. */
  readonly digest: string;
  /** `sha256:<64 hex>` of the uncompressed tar; checked while reading; names the layer. */
  readonly diffId: string;
  /** Largest number of bytes the unpacked files may take; `no-space` beyond. Default 64 GiB. */
  readonly unpackedBytesMax?: number;
}

/** A layer on disk, ready to be stacked. */
export interface Layer {
  /** The diffId. */
  readonly id: string;
  /** Bytes of regular files, hard links counted once. */
  readonly unpackedBytes: number;
  readonly files: number;
}
