import { randomBytes, randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import {
  apiVersionOf,
  convertObject,
  coreGroup,
  extensionsGroup,
  type JsonObject,
  type KubeObject,
  parseApiVersion,
} from "@agent-sandbox/api";
import type { Clock } from "@agent-sandbox/kube";
import type { Store } from "../store/store.ts";
import type { Logger } from "../telemetry/logger.ts";
import type { Admission } from "./admission/admission.ts";
import type { AuditLog } from "./audit/audit.ts";
import type { Authenticator } from "./auth/authenticator.ts";
import type { Authorizer } from "./auth/authorizer.ts";
import type { TokenIssuer } from "./auth/token-issuer.ts";
import { conversionWebhook } from "./crd/conversion-webhook.ts";
import { CrdCleanup } from "./crd/crd-cleanup.ts";
import { type Conversions, type ConversionWebhook, followCrds } from "./crd/crd-registry.ts";
import { installCrds } from "./crd/install-crds.ts";
import { serviceResolver } from "./crd/resolve-service.ts";
import { type Listener, type ListenOptions, openListener } from "./http/http-listener.ts";
import { type BuiltinSpec, builtinDefinitions, readBuiltinSpec, SchemaSet } from "./kinds/builtin-kinds.ts";
import { defaultFlightLimits, type FlightLimits, InFlight } from "./pipeline/in-flight.ts";
import { openUpgrade } from "./pipeline/open-upgrade.ts";
import { runPipeline } from "./pipeline/pipeline.ts";
import { recordAudit } from "./pipeline/record-audit.ts";
import { Registry } from "./registry/registry.ts";
import { type ApiRequest, type ApiResponse, isWholeBody, type RequestHandler } from "./request/api-request.ts";
import type { UserInfo } from "./request/user-info.ts";
import type { VirtualResource } from "./request/virtual-resource.ts";
import type { NodeDialer } from "./scope/node-dialer.ts";
import type { Ids, ServerParts } from "./scope/server-parts.ts";
import { SandboxWaker } from "./sleep/sandbox-waker.ts";
import { ObjectCodec } from "./storage/object-codec.ts";
import { ObjectStorage } from "./storage/object-storage.ts";
import type { SecretBox } from "./storage/secret-box.ts";
import { InProcessTransport } from "./transport.ts";

/** What an API server is made of. */
export interface ApiServerOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly authorizer: Authorizer;
  readonly logger: Logger;
  /** Needed by `listen` only; a caller inside the process brings its identity. */
  readonly authenticator?: Authenticator;
  /** In the order they run; default none. */
  readonly admission?: readonly Admission[];
  /** Kinds that are answered and never stored. */
  readonly virtualResources?: readonly VirtualResource[];
  readonly tokenIssuer?: TokenIssuer;
  readonly nodeDialer?: NodeDialer;
  readonly secretBox?: SecretBox;
  readonly audit?: AuditLog;
  /** Default: Kubernetes' own figures. */
  readonly limits?: Partial<FlightLimits>;
  /** Default: random ones. */
  readonly ids?: Ids;
  /** Conversions in this process, by `group/kind`; default those of our own kinds. */
  readonly conversions?: Conversions;
  readonly conversionWebhook?: ConversionWebhook;
  /** Default: read here. A process that gives up rights reads it before. */
  readonly builtinSpec?: BuiltinSpec;
}

/** The Kubernetes face over a store. Stateless between requests except for open streams. */
export class ApiServer implements RequestHandler {
  readonly parts: ServerParts;
  readonly #logger: Logger;
  readonly #inFlight: InFlight;
  readonly #crds: Disposable;
  readonly #cleanup: CrdCleanup;
  readonly #authenticator: Authenticator | undefined;

  constructor(options: ApiServerOptions) {
    const { store, clock, authorizer, logger } = options;
    const storage = new ObjectStorage({ store, codec: new ObjectCodec({ secretBox: options.secretBox }) });
    const registry = new Registry();
    const spec = options.builtinSpec ?? readBuiltinSpec();
    const schemas = new SchemaSet(spec.definitions);
    for (const definition of builtinDefinitions(spec, schemas)) registry.put(definition);
    for (const resource of options.virtualResources ?? []) registry.putVirtual(resource);
    this.parts = {
      storage,
      registry,
      authorizer,
      clock,
      admission: options.admission ?? [],
      ids: options.ids ?? randomIds,
      tokenIssuer: options.tokenIssuer,
      nodeDialer: options.nodeDialer,
      waker: new SandboxWaker({ parts: { storage, registry }, clock, handle: (request) => this.handle(request) }),
      audit: options.audit,
      builtinSpec: spec,
    };
    this.#logger = logger;
    this.#authenticator = options.authenticator;
    this.#inFlight = new InFlight({ ...defaultFlightLimits, ...options.limits });
    this.#cleanup = new CrdCleanup({
      storage,
      registry,
      clock,
      logger,
      random: Math.random,
      handle: (request) => this.handle(request),
    });
    this.#crds = followCrds({
      storage,
      registry,
      metadataSchema: schemas.resolve("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
      conversions: options.conversions ?? ownConversions,
      webhook: options.conversionWebhook ?? this.#webhook(),
      onDeleted: (crd) => this.#cleanup.begin(crd),
    });
  }

  #webhook(): ConversionWebhook {
    return conversionWebhook({ uuid: () => this.parts.ids.uuid(), resolve: serviceResolver(this.parts) });
  }

  /** Answers one request; never rejects. Failures that are ours are logged here, once. */
  async handle(request: ApiRequest): Promise<ApiResponse> {
    const receivedAtMs = this.parts.clock.nowMs();
    const taken: Disposable[] = [];
    const { response, error, attributes } = await runPipeline(this.parts, request, (kind) => {
      taken.push(this.#inFlight.enter(kind));
    });
    if (this.parts.audit !== undefined) recordAudit(this.parts, { request, response, error, attributes, receivedAtMs });
    if (error !== undefined && response.status >= 500) {
      this.#logger.error({ err: error, method: request.method, path: request.path }, "request failed");
    }
    const [place] = taken;
    if (!isWholeBody(response.body) && place !== undefined) {
      return { ...response, body: holding(response.body, place) };
    }
    place?.[Symbol.dispose]();
    return response;
  }

  /** Opens an exec, attach, port-forward or proxy stream; throws ApiError. The node's answer is on the connection. */
  async openUpgrade(request: ApiRequest): Promise<Duplex> {
    const place = this.#inFlight.enter("stream");
    try {
      const connection = await openUpgrade(this.parts, request);
      connection.once("close", () => place[Symbol.dispose]());
      return connection;
    } catch (error) {
      place[Symbol.dispose]();
      throw error;
    }
  }

  /** A way into this server for code in the same process: same bytes, same rights as over a socket. */
  transportFor(user: UserInfo): InProcessTransport {
    return new InProcessTransport(this, user);
  }

  /** Serves the API over TLS. Precondition: the server was made with an authenticator. */
  async listen(options: ListenOptions): Promise<Listener> {
    if (this.#authenticator === undefined) throw new Error("bug: an API server without an authenticator cannot listen");
    return openListener(this, { authenticator: this.#authenticator, authorizer: this.parts.authorizer }, options);
  }

  /** Installs CustomResourceDefinitions that the product brings; safe to repeat. */
  async installCrds(crds: readonly JsonObject[]): Promise<void> {
    await installCrds((request) => this.handle(request), crds);
  }

  /** Stops following changes. The store is the caller's to close. */
  async close(): Promise<void> {
    this.#cleanup[Symbol.dispose]();
    this.#crds[Symbol.dispose]();
  }
}

/** The conversions of our own kinds; the objects are ours, so the conversion functions know their types. */
const ownConversions: Conversions = Object.fromEntries(
  [`${coreGroup}/Sandbox`, ...["Claim", "Template", "WarmPool"].map((kind) => `${extensionsGroup}/Sandbox${kind}`)].map(
    (key) => [key, convertOwn],
  ),
);

function convertOwn(object: KubeObject, toVersion: string): KubeObject {
  const { group } = parseApiVersion(object.apiVersion);
  return convertObject(object, apiVersionOf({ group, version: toVersion }));
}

const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789";

/** Names from the system's random source, so that they cannot be guessed. */
const randomIds: Ids = {
  uuid: () => randomUUID(),
  nameSuffix: () => [...randomBytes(5)].map((byte) => suffixAlphabet[byte % suffixAlphabet.length]).join(""),
};

async function* holding(body: AsyncIterable<Uint8Array>, place: Disposable): AsyncGenerator<Uint8Array> {
  using _place = place;
  yield* body;
}
