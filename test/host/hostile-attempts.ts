import { sweepAll } from "./contract-case.ts";

/** One request that must be refused. */
export interface Attempt {
  readonly what: string;
  readonly body: unknown;
}

type Body = Readonly<Record<string, unknown>>;

/** What attempts are made of. */
export interface Prey {
  /** An absolute path of root's. */
  readonly secret: string;
  readonly secretDigest: string;
  /** Paths below the node's directory at which something was planted. */
  readonly planted: readonly string[];
}

const huge = "x".repeat(100_000);

/** What is no id. */
const ids: readonly unknown[] = [
  ".",
  "..",
  "../secret",
  "/etc/passwd",
  "a/b",
  "a\0b",
  "a b",
  "a\n",
  "A",
  "-a",
  "a-",
  "a.json",
  "%2e%2e",
  "é",
  "x".repeat(53),
  huge,
  5,
  true,
  ["a"],
  { id: "a" },
];
/** What is no id where one must be given. */
const requiredIds = ["", ...ids];
const digests: readonly unknown[] = ["", "sha256:..", `sha256:../../${"0".repeat(58)}`, `sha256:${"A".repeat(64)}`, 5];
const sizes: readonly unknown[] = [-1, 0, 1, "67108864", 1.5, 2 ** 70, {}];
const slots: readonly unknown[] = [-1, 65_536, 1.5, "1", 2 ** 70];
const addresses: readonly unknown[] = ["", "x", "::1", "10.201.0.2/32", "10.201.0.2; flush ruleset", 5];
const waits: readonly unknown[] = [-1, 2 ** 50, "5"];

/** What is nothing that a snapshot has. */
const archiveFiles: readonly unknown[] = [
  ...requiredIds.map((id) => [{ kind: "volume", id }]),
  ...["", "host", "../volumes", 5].map((kind) => [{ kind, id: "none" }]),
  [{ kind: "saved", id: "none.partial" }],
  [{ kind: "volume", id: "none", path: "/etc/passwd" }],
  Array.from({ length: 1025 }, () => ({ kind: "volume", id: "none" })),
  "none",
];

/** What a request of each shape can be made into that no verb takes. */
function shapes(base: Body): Attempt[] {
  return [
    { what: "a field that it does not have", body: { ...base, path: "/etc/passwd" } },
    { what: "a list", body: "[]" },
    { what: "text", body: '"/etc/passwd"' },
    { what: "two requests", body: `${JSON.stringify(base)}${JSON.stringify(base)}` },
    { what: "half a request", body: '{"id":' },
    { what: "nothing", body: "" },
  ];
}

/** The base request with one field after the other made hostile; a name with dots leads into lists and objects. */
function fields(base: Body, hostile: Readonly<Record<string, readonly unknown[]>>): Attempt[] {
  return Object.entries(hostile).flatMap(([field, values]) =>
    values.map((value) => ({
      what: `${field}: ${JSON.stringify(value)?.slice(0, 60)}`,
      body: replaced(base, field.split("."), value),
    })),
  );
}

function replaced(base: unknown, [first = "", ...rest]: readonly string[], value: unknown): unknown {
  const copy = structuredClone(base ?? {}) as Record<string, unknown>;
  copy[first] = rest.length === 0 ? value : replaced(copy[first], rest, value);
  return copy;
}

function verb(base: Body, hostile: Readonly<Record<string, readonly unknown[]>> = {}): Attempt[] {
  return [...shapes(base), ...fields(base, hostile)];
}

const process = { argv: ["/bin/true"], env: [], cwd: "/", uid: 0, gid: 0, capabilities: [], noNewPrivileges: true };
const hostileProcess = {
  "process.argv": [[], [""], ["a\0b"], "sh", [huge.repeat(20)]],
  "process.env": [["novalue"], ["=x"], ["A=\0"], "A=b"],
  "process.cwd": ["", "relative", "/a/../..", "/a\0b", 5],
  "process.uid": [-1, 2 ** 31, "0"],
  "process.capabilities": [["CAP_NONE"], ["sys_admin"], "CAP_SYS_ADMIN"],
};

const paths = ({ secret, planted }: Prey): readonly unknown[] => [
  "/",
  ".",
  "..",
  secret,
  "../../host/rootfs/forged.json",
  "images/../../../host/rootfs/forged.json",
  "../../bin/tool-0123456789ab",
  "images",
  "a\0b",
  huge,
  5,
  ["images"],
  ...planted,
];

function containerAttempts(prey: Prey): Attempt[] {
  const base = { id: "c", runtime: "runsc", rootfs: "prey", process, mounts: [] };
  const mount = (source: Body, target = "/mnt"): Body => ({ ...base, mounts: [{ source, target, readOnly: false }] });
  const sources: readonly Body[] = [
    { kind: "host-path", path: prey.secret },
    { kind: "host-path", path: "/" },
    { kind: "host-path", path: "etc" },
    { kind: "data-path", path: "host" },
    { kind: "device", path: "/dev/sda" },
    { kind: "", id: "prey" },
    ...["", "..", "../host/rootfs", "tool-0123456789ab/..", "tool-0123456789AB", "none-0123456789ab"].map((name) => ({
      kind: "program",
      name,
    })),
    ...["volume", "empty-dir", "files"].flatMap((kind) => [
      ...requiredIds.map((id) => ({ kind, id })),
      ...["..", "../..", "/etc", "a/../../..", "a\0b"].map((subPath) => ({ kind, id: "prey", subPath })),
    ]),
    { kind: "tmpfs", sizeBytes: 0 },
    { kind: "tmpfs", sizeBytes: 4096, mode: 0o10000 },
  ];
  return [
    ...verb(base, {
      id: requiredIds,
      rootfs: requiredIds,
      runtime: ["", "sh", "../runsc", prey.secret, 5],
      sandboxId: [...ids, "c", "nobody"],
      cgroup: [...ids, "nobody"],
      hostname: ["a b", "-a", "a\n", huge],
      sysctls: [{ "kernel.core_pattern": `|${prey.secret}` }, { "net.x": "1" }],
      slot: [...slots, 7],
      shmBytes: [-1, "5"],
      rlimits: [[{ type: "RLIMIT_NOFILE", soft: 2, hard: 1 }], [{ type: "x", soft: 1, hard: 1 }]],
      restore: [{ imagePath: "images" }],
      restoreFrom: [
        "state",
        { saved: "none", container: "none" },
        ...requiredIds.flatMap((id) => [
          { saved: id, container: "none" },
          { saved: "none", container: id },
        ]),
      ],
      stdoutPath: paths(prey),
      stderrPath: paths(prey),
      mounts: [Array.from({ length: 257 }, () => ({ source: { kind: "tmpfs", sizeBytes: 4096 }, target: "/a" }))],
      ...hostileProcess,
    }),
    ...sources.map((source) => ({ what: `mount of ${JSON.stringify(source).slice(0, 80)}`, body: mount(source) })),
    ...["", "relative", "/", "/proc/sys", "/sys/x", "/dev", "/a/../../..", "/a\0"].map((target) => ({
      what: `mount at ${JSON.stringify(target)}`,
      body: mount({ kind: "tmpfs", sizeBytes: 4096 }, target),
    })),
    {
      what: "SYS_ADMIN under runc",
      body: { ...base, runtime: "runc", process: { ...process, capabilities: ["CAP_SYS_ADMIN"] } },
    },
    {
      what: "a sysctl of the machine's under runc",
      body: { ...base, runtime: "runc", sysctls: { "kernel.core_pattern": "|/x" } },
    },
  ];
}

type Attempts = Readonly<Record<string, readonly Attempt[]>>;

const byId = verb({ id: "none" }, { id: requiredIds });

function fileAttempts(prey: Prey): Attempt[] {
  const file = { path: "key", contentBase64: "", mode: 0o444 };
  return verb(
    { id: "none", files: [file] },
    {
      id: requiredIds,
      "files.0.path": [
        "",
        ".",
        "..",
        "../key",
        "../../rootfs/forged.json",
        prey.secret,
        "..data/key",
        "a/../../key",
        "a\0b",
        `${"x".repeat(300)}`,
        huge,
        5,
      ],
      "files.0.mode": [0o4755, 0o1777, -1, "0644"],
      "files.0.contentBase64": ["%", 5],
      files: [[file, { ...file, path: "key/below" }], Array.from({ length: 4097 }, () => file)],
    },
  );
}

function storageAttempts(prey: Prey): Attempts {
  const layer = { blobPath: "images/good", digest: prey.secretDigest, diffId: prey.secretDigest };
  const rootfs = { id: "none", hostUsr: true, writableBytes: 2 ** 26 };
  return {
    unpackLayer: verb(layer, {
      blobPath: ["", ...paths(prey)],
      digest: digests,
      diffId: digests,
      unpackedBytesMax: [-1, "5"],
    }),
    removeLayer: verb({ id: prey.secretDigest }, { id: [...digests, ...ids] }),
    prepareRootfs: verb(rootfs, {
      id: requiredIds,
      keepKey: ids,
      layers: [["../rootfs"], [prey.secretDigest], [prey.secret]],
      writableBytes: sizes,
      writableFrom: [...ids, "prey", "none"],
      fromImage: ["images/good", "../../host/writable/kept/x.img"],
      spare: [true],
    }),
    releaseRootfs: byId,
    deleteWritableLayer: verb({ key: "none" }, { key: requiredIds }),
    ensureVolume: verb(
      { id: "none", sizeBytes: 2 ** 23 },
      { id: requiredIds, sizeBytes: sizes, gid: [-2, "0", 2 ** 70] },
    ),
    releaseVolume: byId,
    deleteVolume: byId,
    ensureEmptyDir: verb(
      { id: "none", sizeBytes: 2 ** 23 },
      { id: requiredIds, sizeBytes: [-1, 1, "5"], gid: [-2, "0"], memory: ["yes"] },
    ),
    removeEmptyDir: byId,
    writeFiles: fileAttempts(prey),
    removeFiles: byId,
  };
}

function kernelAttempts(): Attempts {
  const cgroup = { id: "none", cpuShares: 1024, pids: 100 };
  return {
    ensureNetwork: verb(
      { cidr: "10.201.0.0/16", gateway: "10.201.0.1" },
      {
        cidr: [
          "",
          "x",
          "0.0.0.0/0",
          "8.8.8.0/24",
          "127.0.0.0/8",
          "169.254.0.0/16",
          "10.201.0.1/16",
          "10.201.0.0/31",
          "::/0",
          5,
        ],
        gateway: ["", "x", "8.8.8.8", "10.202.0.1", "::1"],
      },
    ),
    ensureSlot: verb({ slot: 9 }, { slot: slots, mtu: [1, 100_000, "1500"] }),
    assignSlot: verb(
      { slot: 1, address: "10.201.0.2" },
      {
        slot: [...slots, 8],
        address: [...addresses, "8.8.8.8", "127.0.0.1", "10.201.0.1", "10.202.0.2"],
      },
    ),
    releaseSlot: verb({ slot: 9 }, { slot: slots }),
    ...ruleAttempts(),
    waitHeld: verb({ waitMs: 0, after: 0 }, { waitMs: waits, after: [-1, "0"] }),
    handOver: verb({ address: "10.201.0.2" }, { address: addresses }),
    dropHeld: verb({ address: "10.201.0.2" }, { address: addresses }),
    ensureCgroup: verb(cgroup, {
      id: requiredIds,
      cpuShares: [0, -1, 2 ** 20, "1024"],
      cpuMillis: [-1, 2 ** 40],
      memoryBytes: [1, -1],
      pids: [0, -1, 2 ** 30],
    }),
    cgroupStats: verb({ id: "none" }, { id: requiredIds, shared: [1, "yes"] }),
    freezeCgroup: byId,
    thawCgroup: byId,
    removeCgroup: byId,
  };
}

function ruleAttempts(): Attempts {
  const rule = { slot: 1, address: "10.201.0.2", ingress: [], egress: [] };
  const rules = { endpoints: [rule], gatewayPorts: [], sleeping: [] };
  return {
    applyRules: verb(rules, {
      "endpoints.0.slot": slots,
      "endpoints.0.address": addresses,
      "endpoints.0.egress": [
        [{ blocks: [{ cidr: "0.0.0.0/0 accept; flush ruleset" }] }],
        [{ ports: [{ protocol: "TCP; drop" }] }],
      ],
      gatewayPorts: [[{ protocol: "TCP", port: -1 }], [{ protocol: "TCP", port: 70_000 }], "53"],
      sleeping: [[{ address: "10.201.0.2", ingress: [] }], [{ address: "x", ingress: [] }]],
      endpoints: [[rule, rule]],
    }),
    changeRules: verb(
      { base: "none", revision: "next", endpoints: [rule], sleeping: [], removed: [], groups: [], removedGroups: [] },
      {
        base: ["", "x; flush ruleset", 7],
        "endpoints.0.slot": slots,
        "endpoints.0.address": addresses,
        "endpoints.0.egress": [[{ blocks: [{ cidr: "0.0.0.0/0 accept; flush ruleset" }] }]],
        sleeping: [[{ address: "x", ingress: [] }]],
        removed: [["10.201.0.2; flush ruleset"]],
        groups: [
          [{ id: "peers; flush ruleset", added: [], removed: [] }],
          [{ id: "../x", added: ["10.201.0.2"], removed: [] }],
        ],
        removedGroups: [["x; flush ruleset"]],
      },
    ),
  };
}

function archiveAttempts(prey: Prey): Attempts {
  return {
    packArchive: verb(
      { id: "none", files: [], part: 0, to: "part" },
      { id: requiredIds, files: archiveFiles, part: [-1, 1.5, "0", 2 ** 70], to: paths(prey) },
    ),
    sealArchive: verb({ id: "none", entry: {} }, { id: [...requiredIds, "none"] }),
    openArchive: verb({ id: "none", sealed: "{}" }, { id: requiredIds, sealed: ["", "{}", "[]", huge, 5] }),
    unpackArchive: verb(
      { id: "none", sealed: "{}", files: [{ kind: "volume", id: "none" }], part: 0, from: "part" },
      {
        id: requiredIds,
        sealed: ["", "{}", "[]", huge, 5],
        files: archiveFiles,
        part: [-1, 1.5, "0", 2 ** 70],
        from: paths(prey),
      },
    ),
    forgetArchive: byId,
  };
}

/** The attempts by verb. Every verb of the helper has some; a test compares. */
export function attemptsByVerb(prey: Prey): Attempts {
  return {
    info: verb({}),
    // Root's alone: the node is refused whatever it names, a volume of its own included.
    exportImage: [
      { what: "a volume that is there", body: { kind: "volume", id: "prey", pauseMaxMs: 1000 } },
      ...verb(
        { kind: "writable", id: "prey", pauseMaxMs: 1000 },
        { kind: ["", "rootfs", "../volumes", 5], id: requiredIds, pauseMaxMs: waits },
      ),
    ],
    listLayers: verb({}),
    listRootfs: verb({}),
    listWritableLayers: verb({}),
    listVolumes: verb({}),
    listEmptyDirs: verb({}),
    listSlots: verb({}),
    listContainers: verb({}),
    ...storageAttempts(prey),
    ...kernelAttempts(),
    runContainer: containerAttempts(prey),
    waitContainer: verb({ id: "none", waitMs: 0 }, { id: [...requiredIds, "none"], waitMs: waits }),
    killContainer: verb(
      { id: "none", signal: "TERM" },
      { id: [...requiredIds, "none"], signal: ["", "SIGTERM", "9", "TERM;", "RTMIN+99", 9] },
    ),
    deleteContainer: byId,
    saveSandbox: verb(
      { id: "none", saved: "none" },
      { id: [...requiredIds, "none"], saved: [...requiredIds, "../containers", "none.partial"] },
    ),
    continueSandbox: verb(
      { id: "none", saved: "none" },
      { id: [...requiredIds, "none"], saved: [...ids, "../containers", "none.partial"] },
    ),
    cloneImage: verb(
      { kind: "writable", from: "none", to: "other", pauseMaxMs: 1000 },
      {
        kind: ["", "rootfs", "../volumes", 5],
        from: [...requiredIds, "none", "other"],
        to: [...requiredIds, "../../writable/kept/x"],
        pauseMaxMs: waits,
      },
    ),
    copySaved: verb(
      { from: "none", to: "other" },
      { from: [...requiredIds, "none", "none.partial"], to: [...requiredIds, "../containers", "none.partial"] },
    ),
    listSaved: verb({}),
    ...archiveAttempts(prey),
    discardSaved: byId,
    waitRestored: verb({ id: "none", waitMs: 0 }, { id: [...requiredIds, "none"], waitMs: waits }),
    exec: verb({ id: "none", process, stdin: false }, { id: [...requiredIds, "none"], ...hostileProcess }),
    sweep: verb(
      { ...sweepAll, network: true },
      {
        containers: ids.map((id) => [id]),
        rootfs: ids.map((id) => [id]),
        writableLayers: [["../kept"]],
        volumes: [["../volumes"]],
        emptyDirs: [["../empty"]],
        files: [["../files"]],
        cgroups: [["../.."]],
        saved: [["../containers"], ["state.partial"]],
        slots: slots.map((slot) => [slot]),
        network: ["no"],
      },
    ),
  };
}
