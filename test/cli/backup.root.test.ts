import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EngineLock } from "../../packages/server/src/main/engine-lock.ts";
import { readSetup, rootDir } from "../../scripts/checkout.ts";
import { programPath } from "../cluster/programs.ts";
import { type Finished, TestNamespace } from "../node/namespace.ts";

const command = path.join(rootDir, "agent-sandbox");

const objects = `
apiVersion: v1
kind: Secret
metadata: { name: word }
stringData: { word: xyzzy }
---
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: { name: writer }
spec:
  volumeClaimTemplates:
    - metadata: { name: data }
      spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 64Mi } } }
  podTemplate:
    spec:
      containers:
        - name: main
          image: host.agent-sandbox.local/usr
          command:
            - sh
            - -c
            - >-
              if [ -e /data/sequence ]; then cp /data/sequence /tmp/restored; exec sleep infinity; fi;
              i=0; while :; do for n in 1 2 3 4 5 6 7 8; do i=$((i+1)); echo "record $i" >> /data/sequence; done; sleep 0.02; done
          volumeMounts: [{ name: data, mountPath: /data }]
`;

/** Two machines one after the other: each has a network, a table of mounts, a /run and a host name of its own. */
let first: TestNamespace;
let second: TestNamespace;
let work = "";
let dataA = "";
let dataB = "";
const inWork = (name: string): string => path.join(work, name);

beforeAll(async () => {
  [first, second] = [await TestNamespace.open(), await TestNamespace.open()];
  work = mkdtempSync("/var/tmp/as-backup-test-");
  [dataA, dataB] = [`${work}-a`, `${work}-b`];
  writeFileSync(inWork("objects.yaml"), objects);
  writeFileSync(inWork("passphrase"), "correct horse battery staple\n");
  writeFileSync(inWork("other"), "incorrect horse\n");
  up(first, dataA, "machine-a");
}, 120_000);

afterAll(async () => {
  for (const [place, dataDir] of [
    [first, dataA],
    [second, dataB],
  ] as const)
    place.must(command, "down", "--purge", "--data-dir", dataDir);
  rmSync(work, { recursive: true });
  await first[Symbol.asyncDispose]();
  await second[Symbol.asyncDispose]();
}, 120_000);

function up(place: TestNamespace, dataDir: string, hostname: string): void {
  const start = `hostname ${hostname} && exec ${command} up --detach --sandboxes-ahead 0 --data-dir ${dataDir}`;
  place.must("unshare", "--uts", "sh", "-c", start);
}

const onA = (verb: string, ...args: readonly string[]): string => {
  const [name = "", ...rest] = verb.split(" ");
  return first.must(command, name, ...rest, "--data-dir", dataA, ...args);
};
const onB = (verb: string, ...args: readonly string[]): Finished =>
  second.run([command, verb, "--data-dir", dataB, ...args]);

/** What a sandbox of the second machine has in a file; tried until it is up. */
async function restoredFile(sandbox: string, file: string): Promise<string> {
  let found: Finished = { status: null, stdout: "", stderr: "" };
  await expect
    .poll(() => (found = onB("exec", sandbox, "--", "cat", file)).status, { timeout: 60_000, interval: 100 })
    .toBe(0);
  return found.stdout;
}

let token = "";

test("backup: an engine that runs, with a volume that is written to, is written to one file and read back", async () => {
  onA("apply", "-f", inWork("objects.yaml"));
  onA("pool create", "ready", "--image", "host", "--size", "1");
  onA("claim", "ready", "--name", "mine");
  const named = JSON.parse(onA("get", "claim", "mine", "-o", "json")) as { status: { sandbox: { name: string } } };
  writeFileSync(inWork("claimed"), named.status.sandbox.name);
  onA("exec", named.status.sandbox.name, "--", "sh", "-c", "echo mine > /root/note");
  onA("exec", "writer", "--", "sh", "-c", "echo layer > /root/note");
  copyFileSync(path.join(dataA, "pki/admin.kubeconfig"), inWork("kubeconfig"));
  token = first.must(programPath("kubectl"), "--kubeconfig", inWork("kubeconfig"), "create", "token", "default").trim();

  // An engine has none before its first archive.
  first.must(readSetup().sandboxHost, "archive", "-data-dir", dataA, "rotate");
  writeFileSync(inWork("archive.keys"), onA("archive key export"));
  mkdirSync(inWork("into"));
  const said = onA("backup", "--all", "--to", inWork("into"), "--passphrase-file", inWork("passphrase"));
  const [file = "", ...others] = readdirSync(inWork("into"));
  expect(others).toEqual([]);
  expect(file).toMatch(/^agent-sandbox-machine-a-\d{4}-\d\d-\d\dT\d{6}Z\.tar\.enc$/);
  const backup = inWork("backup");
  execFileSync("mv", [path.join(inWork("into"), file), backup]);
  expect(said).toMatch(
    /is written and was read back: .* \d+ parts in [\d.]+ s; writers waited \d+ ms at most\nsha256 [0-9a-f]{64}\n$/,
  );
  expect(said).toContain(execFileSync("sha256sum", [backup], { encoding: "utf8" }).slice(0, 64));
  expect(statSync(backup).mode & 0o777).toBe(0o600);
  const { status, stdout } = first.run([
    command,
    "backup",
    "--verify",
    backup,
    "--passphrase-file",
    inWork("passphrase"),
  ]);
  expect([status, stdout]).toEqual([0, expect.stringContaining("is whole")]);
  // Neither a snapshot nor a copy of the database is left behind; the directories of SandboxSnapshots are there, and empty.
  const left = execFileSync(
    "find",
    [dataA, "-path", "*snapshot*", "!", "-name", "snapshots", "-o", "-name", "*backup-copy*"],
    {
      encoding: "utf8",
    },
  );
  expect(left).toBe("");
});

test("backup: to standard output it is the same, and without a passphrase it says what that means", () => {
  const written = first.run(["sh", "-c", `${command} backup --data-dir ${dataA} --to - > ${inWork("plain.tar")}`]);
  expect([written.status, written.stderr]).toEqual([
    0,
    expect.stringContaining("warning: this backup is not encrypted"),
  ]);
  const names = execFileSync("tar", ["-tf", inWork("plain.tar")], { encoding: "utf8" })
    .trim()
    .split("\n");
  expect([names[0], names.at(-1)]).toEqual(["manifest.json", "trailer.json"]);
  expect(names.some((name) => name.startsWith("host/volumes/pvc-"))).toBe(true);
  expect(names.some((name) => name.startsWith("host/writable/"))).toBe(false);
});

test("backup: a disk that fills up is told in one sentence, and nothing is left there", () => {
  const small = inWork("small");
  mkdirSync(small);
  first.must("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small);
  const { status, stderr } = first.run([command, "backup", "--data-dir", dataA, "--to", path.join(small, "b.tar")]);
  expect([status, stderr]).toEqual([
    1,
    `error: the backup could not be written to ${small}/b.tar, and what there was of it is removed: the disk is full; make room, or choose another place\n`,
  ]);
  expect(first.must("ls", "-A", small)).toBe("");
  first.must("umount", small);
});

test("backup: one that is killed leaves no file under its name, and nobody waiting", async () => {
  const dir = inWork("killed");
  mkdirSync(dir);
  const [program, args] = first.inside(command, "backup", "--data-dir", dataA, "--to", path.join(dir, "b.tar"));
  const child = spawn(program, args, { stdio: "ignore" });
  const ended = once(child, "exit");
  await expect.poll(() => readdirSync(dir).length, { interval: 5, timeout: 20_000 }).toBe(1);
  child.kill("SIGKILL");
  await ended;
  expect(readdirSync(dir)).toEqual([expect.stringMatching(/^\.b\.tar\..*\.partial$/)]);
  onA("exec", "writer", "--", "sh", "-c", "echo on > /data/after");
});

test("backup: what cannot be is refused with a code of the table", () => {
  const refused = (...args: readonly string[]): unknown[] => {
    const { status, stderr } = first.run([command, "backup", ...args]);
    return [status, stderr];
  };
  expect(refused("--data-dir", dataA)).toEqual([2, expect.stringContaining("--to FILE")]);
  expect(refused("--data-dir", dataA, "--to", inWork("backup"))).toEqual([
    6,
    expect.stringContaining("is there already"),
  ]);
  expect(refused("--data-dir", `${work}-none`, "--to", "x")).toEqual([4, expect.stringContaining("no engine's data")]);
  expect(refused("--data-dir", dataA, "--to", "x", "--include", "disks")).toEqual([
    2,
    expect.stringContaining("'disks'"),
  ]);
  expect(refused("--verify", inWork("objects.yaml"))).toEqual([
    9,
    expect.stringContaining("no backup of agent-sandbox"),
  ]);
});

test("restore: a backup that is damaged, cut off or of another passphrase is refused, and nothing is written", () => {
  first.must(command, "down", "--purge", "--data-dir", dataA);
  // What is not encrypted is checked by its digests alone.
  const whole = readFileSync(inWork("plain.tar"));
  const damaged = Buffer.from(whole);
  damaged[Math.floor(whole.length / 2)] = (damaged[Math.floor(whole.length / 2)] ?? 0) ^ 1;
  writeFileSync(inWork("flipped"), damaged);
  copyFileSync(inWork("plain.tar"), inWork("short"));
  truncateSync(inWork("short"), whole.length - 100);
  const refused = (file: string, passphrase?: string): unknown[] => {
    const flags = passphrase === undefined ? [] : ["--passphrase-file", inWork(passphrase)];
    const { status, stderr } = onB("restore", "--from", inWork(file), ...flags);
    return [status, stderr];
  };
  expect(refused("flipped")).toEqual([9, expect.stringMatching(/^error: the backup is damaged: .*\n$/)]);
  expect(refused("short")).toEqual([9, expect.stringMatching(/^error: the backup is damaged: .*\n$/)]);
  expect(refused("backup", "other")).toEqual([
    5,
    "error: the passphrase is not the one that this backup was encrypted with\n",
  ]);
  expect(refused("backup")).toEqual([5, expect.stringMatching(/^error: .* is encrypted; name the file .*\n$/)]);
  expect(refused("missing")).toEqual([1, expect.stringMatching(/^error: cannot read .*\n$/)]);
  expect(existsSync(dataB)).toBe(false);
});

test("restore: a directory with something in it is left alone, or moved aside with --force", () => {
  mkdirSync(dataB, { mode: 0o755 });
  writeFileSync(path.join(dataB, "precious"), "mine");
  const from = ["--from", inWork("backup"), "--passphrase-file", inWork("passphrase")];
  const refused = onB("restore", "--from", inWork("plain.tar"));
  expect([refused.status, refused.stderr]).toEqual([
    6,
    `error: ${dataB} is not empty (it has precious); choose another --data-dir, or move what is there aside with --force\n`,
  ]);
  expect(readdirSync(dataB)).toEqual(["precious"]);
  const done = onB("restore", "--force", ...from);
  expect([done.status, done.stderr]).toEqual([0, ""]);
  const moved = /is in (\S+)\n/.exec(done.stdout)?.[1] ?? "";
  expect(readFileSync(path.join(moved, "precious"), "utf8")).toBe("mine");
  rmSync(moved, { recursive: true });
});

test("restore: with --force, an engine that is starting and a disk without room leave the old data where it is", () => {
  mkdirSync(inWork("starting"), { mode: 0o755 });
  writeFileSync(inWork("starting/precious"), "mine");
  const restored = (dir: string): Finished =>
    second.run([command, "restore", "--force", "--data-dir", dir, "--from", inWork("plain.tar")]);
  {
    // As an engine does before it has a record.
    using lock = EngineLock.takeIn(inWork("starting"));
    expect(lock).toBeDefined();
    const { status, stderr } = restored(inWork("starting"));
    expect([status, stderr]).toEqual([6, expect.stringContaining("another command starts or stops an engine")]);
  }
  expect(readdirSync(inWork("starting")).toSorted()).toEqual(["engine.lock", "precious"]);

  mkdirSync(inWork("full"), { mode: 0o755 });
  second.must("mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", inWork("full"));
  const dir = inWork("full/data");
  second.must("sh", "-c", `mkdir ${dir} && echo mine > ${dir}/precious`);
  const { status, stderr } = restored(dir);
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(/^error: the disk of .* bytes free and the backup needs /),
  ]);
  expect(second.must("sh", "-c", `cd ${inWork("full")} && find . -type f | sort`)).toBe(
    "./data/engine.lock\n./data/precious\n",
  );
  second.must("umount", inWork("full"));
});

test("restore: another machine comes up with the sandboxes, their files, the claim, the Secret and the keys", async () => {
  up(second, dataB, "machine-b");
  expect(onB("get", "nodes", "-o", "name").stdout.trim()).toMatch(/machine-a$/);
  // What the writer had written at the moment of the backup, and no torn record but perhaps the last one.
  const lines = (await restoredFile("writer", "/tmp/restored")).split("\n");
  const torn = lines.pop() ?? "";
  expect(lines.length).toBeGreaterThan(10);
  expect(lines.findIndex((line, index) => line !== `record ${index + 1}`)).toBe(-1);
  expect(`record ${lines.length + 1}`.startsWith(torn)).toBe(true);
  expect(await restoredFile("writer", "/root/note")).toBe("layer\n");
  expect(await restoredFile(readFileSync(inWork("claimed"), "utf8"), "/root/note")).toBe("mine\n");
  const claim = JSON.parse(onB("get", "claim", "mine", "-o", "json").stdout) as {
    status: { sandbox: { name: string } };
  };
  expect(claim.status.sandbox.name).toBe(readFileSync(inWork("claimed"), "utf8"));
  const keys = second.must(command, "archive", "key", "export", "--data-dir", dataB);
  expect(keys).toBe(readFileSync(inWork("archive.keys"), "utf8"));
  // Credentials of the first machine.
  const kubectl = (...args: readonly string[]): string => second.must(programPath("kubectl"), ...args);
  const secret = kubectl("--kubeconfig", inWork("kubeconfig"), "get", "secret", "word", "-o", "jsonpath={.data.word}");
  expect(Buffer.from(secret, "base64").toString()).toBe("xyzzy");
  const review = [
    "--server",
    "https://127.0.0.1:7443",
    "--insecure-skip-tls-verify",
    "--token",
    token,
    "auth",
    "whoami",
  ];
  expect(kubectl("--kubeconfig", "/dev/null", ...review)).toContain("system:serviceaccount:default:default");
});

test("backup: an engine that does not run is backed up too", () => {
  second.must(command, "down", "--data-dir", dataB);
  const said = onB("backup", "--all", "--to", inWork("cold.tar"));
  expect([said.status, said.stdout]).toEqual([0, expect.stringContaining("writers waited 0 ms at most")]);
});
