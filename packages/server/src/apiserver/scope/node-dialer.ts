import type { Duplex } from "node:stream";
import type { UserInfo } from "../request/user-info.ts";

/** A request to a node's kubelet endpoint. */
export interface NodeRequest {
  readonly method: string;
  /** Path with query, for example `/exec/ns/pod/container?command=ls`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
}

/** The node's answer to a plain request. */
export interface NodeResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: AsyncIterable<Uint8Array>;
}

/** Reaches the kubelet endpoint of a node by the node's name. */
export interface NodeDialer {
  /** Rejects when the node cannot be reached. */
  request(nodeName: string, request: NodeRequest): Promise<NodeResponse>;
  /** Opens a connection on which the caller writes a raw HTTP/1.1 upgrade request and reads the answer. */
  connect(nodeName: string, signal?: AbortSignal): Promise<Duplex>;
  /**
   * Opens a connection to the component behind a virtual Pod, on which the same is written; the component gets the name of
   * the user. Absent where no component can be reached.
   */
  connectVirtual?(component: string, user: UserInfo, signal?: AbortSignal): Promise<Duplex>;
}
