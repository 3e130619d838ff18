import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import type {
  ArchivePart,
  OpenedArchive,
  PackArchiveRequest,
  SealedArchive,
  UnpackArchiveRequest,
  UnpackedArchive,
} from "./archive.ts";
import type { CgroupReport, CgroupStats, CgroupStatsRequest, EnsureCgroupRequest, FrozenCgroup } from "./cgroup.ts";
import type { ContainerExit, ContainerState, ExecRequest, RunContainerRequest } from "./container.ts";
import type { ExecStream } from "./exec-stream.ts";
import type { Host, HostInfo, SweepReport, SweepRequest } from "./host.ts";
import { HostError, type HostErrorCode, hostErrorCodes } from "./host-error.ts";
import type { ClonedImage, CloneImageRequest } from "./image-clone.ts";
import type { Layer, UnpackLayerRequest } from "./layer.ts";
import type { AssignSlotRequest, EnsureNetworkRequest, EnsureSlotRequest, HeldConnections, Slot } from "./network.ts";
import type { PrepareRootfsRequest, Rootfs, WritableLayer } from "./rootfs.ts";
import type { RuleChange, RuleSet } from "./ruleset.ts";
import type { ContinueSandboxRequest, CopySavedRequest, SavedState, SaveSandboxRequest } from "./saved-state.ts";
import { SocketExecStream } from "./socket-exec-stream.ts";
import type { EnsureEmptyDirRequest, EnsureVolumeRequest, Volume, WriteFilesRequest } from "./volume.ts";

/** Answers are small, but a list of ten thousand containers is not; beyond this the helper is not what it says it is. */
const answerBytesMax = 64 << 20;

const execProtocol = "agent-sandbox-exec";

/** The real helper, over its Unix socket. */
export class HostClient implements Host {
  readonly #socketPath: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(options: { readonly socketPath: string }) {
    this.#socketPath = options.socketPath;
  }

  info = (signal?: AbortSignal) => this.#call<HostInfo>("info", {}, signal);

  unpackLayer = (r: UnpackLayerRequest, signal?: AbortSignal) => this.#call<Layer>("unpackLayer", r, signal);
  listLayers = (signal?: AbortSignal) => this.#call<Layer[]>("listLayers", {}, signal);
  removeLayer = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("removeLayer", r, signal);

  prepareRootfs = (r: PrepareRootfsRequest, signal?: AbortSignal) => this.#call<Rootfs>("prepareRootfs", r, signal);
  listRootfs = (signal?: AbortSignal) => this.#call<Rootfs[]>("listRootfs", {}, signal);
  releaseRootfs = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("releaseRootfs", r, signal);
  listWritableLayers = (signal?: AbortSignal) => this.#call<WritableLayer[]>("listWritableLayers", {}, signal);
  cloneImage = (r: CloneImageRequest, signal?: AbortSignal) => this.#call<ClonedImage>("cloneImage", r, signal);
  deleteWritableLayer = (r: { readonly key: string }, signal?: AbortSignal) =>
    this.#act("deleteWritableLayer", r, signal);

  ensureVolume = (r: EnsureVolumeRequest, signal?: AbortSignal) => this.#call<Volume>("ensureVolume", r, signal);
  listEmptyDirs = (signal?: AbortSignal) => this.#call<Volume[]>("listEmptyDirs", {}, signal);
  listVolumes = (signal?: AbortSignal) => this.#call<Volume[]>("listVolumes", {}, signal);
  releaseVolume = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("releaseVolume", r, signal);
  deleteVolume = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("deleteVolume", r, signal);
  ensureEmptyDir = (r: EnsureEmptyDirRequest, signal?: AbortSignal) => this.#act("ensureEmptyDir", r, signal);
  removeEmptyDir = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("removeEmptyDir", r, signal);
  writeFiles = (r: WriteFilesRequest, signal?: AbortSignal) => this.#act("writeFiles", r, signal);
  removeFiles = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("removeFiles", r, signal);

  ensureNetwork = (r: EnsureNetworkRequest, signal?: AbortSignal) => this.#act("ensureNetwork", r, signal);
  ensureSlot = (r: EnsureSlotRequest, signal?: AbortSignal) => this.#call<Slot>("ensureSlot", r, signal);
  assignSlot = (r: AssignSlotRequest, signal?: AbortSignal) => this.#call<Slot>("assignSlot", r, signal);
  releaseSlot = (r: { readonly slot: number }, signal?: AbortSignal) => this.#act("releaseSlot", r, signal);
  listSlots = (signal?: AbortSignal) => this.#call<Slot[]>("listSlots", {}, signal);
  applyRules = (r: RuleSet, signal?: AbortSignal) => this.#act("applyRules", r, signal);
  changeRules = (r: RuleChange, signal?: AbortSignal) => this.#act("changeRules", r, signal);
  waitHeld = (r: { readonly waitMs: number; readonly after: number }, signal?: AbortSignal) =>
    this.#call<HeldConnections>("waitHeld", r, signal);
  handOver = (r: { readonly address: string }, signal?: AbortSignal) =>
    this.#call<{ connections: number }>("handOver", r, signal);
  dropHeld = (r: { readonly address: string }, signal?: AbortSignal) => this.#act("dropHeld", r, signal);

  ensureCgroup = (r: EnsureCgroupRequest, signal?: AbortSignal) => this.#call<CgroupReport>("ensureCgroup", r, signal);
  cgroupStats = (r: CgroupStatsRequest, signal?: AbortSignal) => this.#call<CgroupStats>("cgroupStats", r, signal);
  freezeCgroup = (r: { readonly id: string }, signal?: AbortSignal) =>
    this.#call<FrozenCgroup>("freezeCgroup", r, signal);
  thawCgroup = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("thawCgroup", r, signal);
  removeCgroup = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("removeCgroup", r, signal);

  runContainer = (r: RunContainerRequest, signal?: AbortSignal) =>
    this.#call<ContainerState>("runContainer", r, signal);
  listContainers = (signal?: AbortSignal) => this.#call<ContainerState[]>("listContainers", {}, signal);
  waitContainer = async (r: { readonly id: string; readonly waitMs: number }, signal?: AbortSignal) =>
    (await this.#call<{ exit?: ContainerExit }>("waitContainer", r, signal)).exit;
  killContainer = (r: { readonly id: string; readonly signal: string; readonly all?: boolean }, signal?: AbortSignal) =>
    this.#act("killContainer", r, signal);
  deleteContainer = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("deleteContainer", r, signal);

  saveSandbox = (r: SaveSandboxRequest, signal?: AbortSignal) => this.#call<SavedState>("saveSandbox", r, signal);
  continueSandbox = (r: ContinueSandboxRequest, signal?: AbortSignal) => this.#act("continueSandbox", r, signal);
  listSaved = (signal?: AbortSignal) => this.#call<SavedState[]>("listSaved", {}, signal);
  copySaved = (r: CopySavedRequest, signal?: AbortSignal) => this.#call<SavedState>("copySaved", r, signal);
  discardSaved = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("discardSaved", r, signal);
  waitRestored = async (r: { readonly id: string; readonly waitMs: number }, signal?: AbortSignal) =>
    (await this.#call<{ restored?: true }>("waitRestored", r, signal)).restored && ("restored" as const);

  packArchive = async (r: PackArchiveRequest, signal?: AbortSignal) =>
    (await this.#call<{ part?: ArchivePart }>("packArchive", r, signal)).part;
  sealArchive = (r: { readonly id: string; readonly entry: unknown }, signal?: AbortSignal) =>
    this.#call<SealedArchive>("sealArchive", r, signal);
  openArchive = (r: SealedArchive, signal?: AbortSignal) => this.#call<OpenedArchive>("openArchive", r, signal);
  unpackArchive = (r: UnpackArchiveRequest, signal?: AbortSignal) =>
    this.#call<UnpackedArchive>("unpackArchive", r, signal);
  forgetArchive = (r: { readonly id: string }, signal?: AbortSignal) => this.#act("forgetArchive", r, signal);

  sweep = (r: SweepRequest, signal?: AbortSignal) => this.#call<SweepReport>("sweep", r, signal);

  exec(request: ExecRequest, signal?: AbortSignal): Promise<ExecStream> {
    const { promise, resolve, reject } = Promise.withResolvers<ExecStream>();
    const outgoing = this.#open("exec", signal, { connection: "Upgrade", upgrade: execProtocol });
    outgoing.on("upgrade", (_response, socket, head) => resolve(new SocketExecStream(socket, head)));
    outgoing.on("response", (response) => {
      readAnswer(response).then(
        () => reject(new HostError("internal", "exec was answered without a stream")),
        (error: unknown) => reject(error),
      );
    });
    outgoing.on("error", (error) => reject(asHostError(error, signal)));
    outgoing.end(JSON.stringify(request));
    return promise;
  }

  async close(): Promise<void> {
    this.#agent.destroy();
  }

  async #act(verb: string, request: unknown, signal?: AbortSignal): Promise<void> {
    await this.#call(verb, request, signal);
  }

  #call<T>(verb: string, request: unknown, signal?: AbortSignal): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const outgoing = this.#open(verb, signal, {});
    outgoing.on("response", (response) => {
      readAnswer(response).then(
        (answer) => resolve(answer as T),
        (error: unknown) => reject(asHostError(error, signal)),
      );
    });
    outgoing.on("error", (error) => reject(asHostError(error, signal)));
    outgoing.end(JSON.stringify(request));
    return promise;
  }

  #open(verb: string, signal: AbortSignal | undefined, headers: Record<string, string>): ClientRequest {
    return httpRequest({
      socketPath: this.#socketPath,
      // An upgraded connection is never given back, so it must not come from the pool.
      agent: headers["upgrade"] === undefined ? this.#agent : false,
      method: "POST",
      path: `/v1/${verb}`,
      headers: { "content-type": "application/json", ...headers },
      ...(signal === undefined ? {} : { signal }),
    });
  }
}

async function readAnswer(response: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > answerBytesMax) throw new HostError("internal", `answer is over the bound of ${answerBytesMax} bytes`);
    chunks.push(chunk);
  }
  const answer: unknown = JSON.parse(Buffer.concat(chunks).toString());
  if (response.statusCode === 200) return answer;
  const { code, message } = answer as { code?: string; message?: string };
  throw new HostError(isHostErrorCode(code) ? code : "internal", message ?? `status ${response.statusCode}`);
}

function isHostErrorCode(code: string | undefined): code is HostErrorCode {
  return code !== undefined && Object.hasOwn(hostErrorCodes, code);
}

/** A cancelled call rejects with the signal's reason; a cut connection is the helper being restarted. */
function asHostError(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (error instanceof HostError) return error;
  return new HostError("unavailable", "sandbox-host does not answer", { cause: error });
}
