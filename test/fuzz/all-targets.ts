import type { FuzzTarget } from "./fuzz-target.ts";
import { dnsQuery } from "./targets/dns.ts";
import { connectEnvelopes, execFrames, kubeProtobuf, processEvents } from "./targets/frames.ts";
import { httpResponse, websocketFrames } from "./targets/http.ts";
import { objectNames, quantities, selectors, times } from "./targets/names.ts";
import { imageNames, ociDocuments, registryAuth, tarArchive } from "./targets/oci.ts";
import { celRules, guestLines, jsonBodies, jsonPatches, requestTargets } from "./targets/requests.ts";
import { spdyConnection, spdyFrames, spdyHeaders } from "./targets/spdy.ts";

/** Every parser in TypeScript that reads what a guest or a caller sends; those in Go are `Fuzz*` functions of native/. */
export const allTargets: readonly FuzzTarget[] = [
  dnsQuery,
  httpResponse,
  websocketFrames,
  spdyFrames,
  spdyHeaders,
  spdyConnection,
  connectEnvelopes,
  processEvents,
  kubeProtobuf,
  execFrames,
  ociDocuments,
  imageNames,
  registryAuth,
  tarArchive,
  selectors,
  quantities,
  times,
  objectNames,
  jsonBodies,
  jsonPatches,
  requestTargets,
  celRules,
  guestLines,
];
