import { createHash } from "node:crypto";
import type { JsonObject } from "@agent-sandbox/api";
import type { ResourceDefinition, VersionDefinition } from "../registry/resource-definition.ts";
import { answerBytes, answerValue } from "../request/answer.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { parseMediaTypes } from "../request/media-type.ts";
import { notServed } from "../request/not-served.ts";
import type { ServerParts } from "../scope/server-parts.ts";
import { pathsOf, v2Parameter, v3Parameter } from "./openapi-paths.ts";
import { schemasFor } from "./openapi-schemas.ts";
import { encodeOpenApiV2 } from "./protobuf-v2.ts";

interface ServedKind {
  readonly definition: ResourceDefinition;
  readonly version: VersionDefinition;
}

const info = { title: "Kubernetes", version: "v1.36.3" };
/** Clients ask with an at sign; the answer's type has a dot instead, because an at sign is no valid media type. */
const v2Protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const v2ProtobufAsked = new Set([v2Protobuf, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"]);

/** Answers /openapi/v2, /openapi/v3 and /openapi/v3/<group version>. Documents are made once per change of the registry. */
export function serveOpenApi(server: ServerParts, request: ApiRequest, path: string): ApiResponse {
  const cache = cacheOf(server);
  if (path === "/openapi/v2") return serveV2(cache, request);
  if (path === "/openapi/v3") return answerValue(200, cache.index());
  const document = path.startsWith("/openapi/v3/") ? cache.v3(path.slice("/openapi/v3/".length)) : undefined;
  if (document === undefined) throw notServed();
  return answerBytes(200, [document.bytes], { etag: `"${document.hash}"`, "cache-control": "public, immutable" });
}

/** Older clients take the document in protobuf only. */
function serveV2(cache: DocumentCache, request: ApiRequest): ApiResponse {
  const accepted = parseMediaTypes(request.headers?.["accept"] ?? "").map(({ type }) => type);
  const first = accepted.find((type) => v2ProtobufAsked.has(type) || type === "application/json" || type === "*/*");
  if (first !== undefined && v2ProtobufAsked.has(first))
    return answerBytes(200, [cache.v2Protobuf()], { "content-type": v2Protobuf });
  return answerBytes(200, [cache.v2Json()]);
}

interface Document {
  readonly bytes: Uint8Array;
  readonly hash: string;
}

class DocumentCache {
  readonly #server: ServerParts;
  readonly generation: number;
  readonly #kinds = new Map<string, ServedKind[]>();
  readonly #documents = new Map<string, Document>();
  #v2Protobuf: Uint8Array | undefined;
  #v2Json: Uint8Array | undefined;

  constructor(server: ServerParts) {
    this.#server = server;
    this.generation = server.registry.generation;
    for (const definition of server.registry.all()) {
      for (const version of definition.versions) {
        if (!version.served) continue;
        const key = definition.group === "" ? `api/${version.name}` : `apis/${definition.group}/${version.name}`;
        this.#kinds.set(key, [...(this.#kinds.get(key) ?? []), { definition, version }]);
      }
    }
  }

  index(): JsonObject {
    const paths = [...this.#kinds.keys()].map((key) => [
      key,
      { serverRelativeURL: `/openapi/v3/${key}?hash=${this.v3(key)?.hash ?? ""}` },
    ]);
    return { paths: Object.fromEntries(paths) as JsonObject };
  }

  v3(key: string): Document | undefined {
    const known = this.#documents.get(key);
    if (known !== undefined) return known;
    const kinds = this.#kinds.get(key);
    if (kinds === undefined) return undefined;
    const schemas = schemasFor(this.#server, kinds, "#/components/schemas/");
    const paths = Object.assign(
      {},
      ...kinds.map(({ definition, version }) => pathsOf(definition, version, v3Parameter)),
    ) as JsonObject;
    const bytes = Buffer.from(JSON.stringify({ openapi: "3.0.0", info, paths, components: { schemas } }));
    const document = { bytes, hash: createHash("sha256").update(bytes).digest("hex").toUpperCase() };
    this.#documents.set(key, document);
    return document;
  }

  v2Json(): Uint8Array {
    this.#v2Json ??= Buffer.from(JSON.stringify(this.#v2Document()));
    return this.#v2Json;
  }

  v2Protobuf(): Uint8Array {
    this.#v2Protobuf ??= encodeOpenApiV2(this.#v2Document());
    return this.#v2Protobuf;
  }

  #v2Document(): JsonObject {
    const kinds = [...this.#kinds.values()].flat();
    // Not kept: both encodings of it are, and it is larger than they are.
    return {
      swagger: "2.0",
      info,
      paths: Object.assign(
        {},
        ...kinds.map(({ definition, version }) => pathsOf(definition, version, v2Parameter)),
      ) as JsonObject,
      definitions: schemasFor(this.#server, kinds, "#/definitions/"),
    };
  }
}

const caches = new WeakMap<object, DocumentCache>();

function cacheOf(server: ServerParts): DocumentCache {
  const known = caches.get(server.registry);
  if (known?.generation === server.registry.generation) return known;
  const fresh = new DocumentCache(server);
  caches.set(server.registry, fresh);
  return fresh;
}
