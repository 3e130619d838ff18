// Makes a user's mistakes for real, with the command and the three SDKs, and writes what each of them said to
// docs/errors.md:  node test/examples/mistakes.ts
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { serviceAccounts } from "@agent-sandbox/api";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine";
import { parse } from "yaml";
import { rootDir } from "../../scripts/checkout.ts";
import { ExampleEngine, type Outcome } from "./engine.ts";

/** One mistake: what the page says about it, and the same mistake on the command line. */
interface Mistake {
  readonly name: string;
  readonly title: string;
  readonly did: string;
  readonly command: readonly string[];
  /** No SDK can make it. */
  readonly isCommandOnly?: boolean;
}

const languages = ["command line", "TypeScript", "Python", "Go"] as const;
type Language = (typeof languages)[number];

/** What somebody reads who made a mistake. */
export interface Reading {
  readonly mistake: Mistake;
  readonly said: Readonly<Partial<Record<Language, string>>>;
  readonly exitCode: number;
}

const runTimeoutMs = 60_000;
const noImage = "127.0.0.1:5999/no-such-image:1";

const mistakes: readonly Mistake[] = [
  {
    name: "wrong-pool",
    title: "A pool that does not exist",
    did: "claimed from the pool `gpu-pool`",
    command: ["run", "--pool", "gpu-pool", "--", "true"],
  },
  {
    name: "bad-image",
    title: "An image that cannot be had",
    did: `asked for the image \`${noImage}\`, whose registry does not answer`,
    command: ["run", "--image", noImage, "--", "true"],
  },
  {
    name: "missing-command",
    title: "A command that the image does not have",
    did: "ran `pythn main.py` in the sandbox `dev`",
    command: ["exec", "dev", "--", "pythn", "main.py"],
  },
  {
    name: "missing-directory",
    title: "A working directory that does not exist",
    did: "ran `ls` in the directory `/srv/app` of the sandbox `dev`, which has none",
    command: ["exec", "--workdir", "/srv/app", "dev", "--", "ls"],
  },
  {
    name: "not-executable",
    title: "A file that is not executable",
    did: "ran `/etc/hostname` in the sandbox `dev`",
    command: ["exec", "dev", "--", "/etc/hostname"],
  },
  {
    name: "failing-command",
    title: "A command that fails",
    did: "ran `cat /no/such/file`, with `check` where there is one; the command line passes on what the command printed",
    command: ["exec", "dev", "--", "cat", "/no/such/file"],
  },
  {
    name: "timeout",
    title: "A command that takes too long",
    did: "ran `sleep 60` with a limit of one second",
    command: ["exec", "--command-timeout", "1s", "dev", "--", "sleep", "60"],
  },
  {
    name: "out-of-memory",
    title: "A command that takes more memory than its sandbox has",
    did: "ran `tail /dev/zero` in a sandbox of 96 MiB, with `check` where there is one",
    command: ["run", "--memory", "96Mi", "--", "tail", "/dev/zero"],
  },
  {
    name: "no-such-sandbox",
    title: "A sandbox that does not exist",
    did: "asked for `dve`, where there is a `dev`",
    command: ["exec", "dve", "--", "true"],
  },
  {
    name: "no-engine",
    title: "No engine is running",
    did: "used the data directory `/srv/sandboxes`, on which no engine runs",
    command: ["ls"],
  },
  {
    name: "no-permission",
    title: "No permission",
    did: "made a sandbox with the credentials of the ServiceAccount `guest`, which has no rights",
    command: ["run", "--", "true"],
  },
  {
    name: "no-root",
    title: "No root",
    did: "started the engine as an ordinary user",
    command: ["up", "--data-dir", "/srv/sandboxes"],
    isCommandOnly: true,
  },
  {
    name: "odd-address",
    title: "An address that is none",
    did: "gave the engine an address without a port",
    command: ["up", "--listen", "localhost"],
    isCommandOnly: true,
  },
  {
    name: "closed-parent",
    title: "A data directory that the engine cannot reach",
    did: "put the data directory below a home that is closed to others",
    command: ["up", "--data-dir", "HOME/sandboxes"],
    isCommandOnly: true,
  },
  {
    name: "disk-full",
    title: "The disk is full",
    did: "wrote a file of 64 MiB into a volume of 16 MiB",
    command: ["cp", "BIG", "dev:/small/big"],
  },
  {
    name: "held",
    title: "A sandbox that its owner suspended and holds",
    did: "ran a command in a sandbox that was suspended with `--hold`",
    command: ["exec", "held", "--", "true"],
  },
];

/** What the page calls the directory of the run. */
const shownHome = "/home/me";

/** Makes every mistake in every language. */
export async function collectReadings(engine: ExampleEngine): Promise<Reading[]> {
  const dir = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-mistakes-"));
  try {
    const place = await prepare(engine, dir);
    const readings: Reading[] = [];
    for (const mistake of mistakes) readings.push(await make(engine, mistake, place));
    return readings;
  } finally {
    await rm(dir, { recursive: true });
  }
}

/** What the mistakes need: two sandboxes, a large file, credentials without rights, the Go program. */
interface Place {
  /** Closed to everybody but its owner, as `mkdtemp` makes directories. */
  readonly home: string;
  readonly bigFile: string;
  readonly guestKubeconfig: string;
  readonly goProgram: string;
}

async function prepare(engine: ExampleEngine, dir: string): Promise<Place> {
  const place = {
    home: dir,
    bigFile: path.join(dir, "big"),
    guestKubeconfig: path.join(dir, "guest.kubeconfig"),
    goProgram: path.join(dir, "mistakes"),
  };
  await writeFile(place.bigFile, new Uint8Array(64 * 2 ** 20));
  await writeFile(place.guestKubeconfig, await guestKubeconfig(engine.dataDir));
  const steps = [
    ["agent-sandbox", "run", "--name", "dev", "--volume", "/small:16Mi", "--", "true"],
    ["agent-sandbox", "run", "--name", "held", "--", "true"],
    ["agent-sandbox", "suspend", "--hold", "held"],
    ["go", "build", "-o", place.goProgram, "."],
  ];
  for (const step of steps) {
    const cwd = path.join(rootDir, "test/examples/mistakes");
    const { exitCode, stderr } = await engine.run(step, { cwd, timeoutMs: runTimeoutMs });
    if (exitCode !== 0) throw new Error(`${step.join(" ")}: ${stderr}`);
  }
  return place;
}

/** The administrator's kubeconfig with another user: a fresh ServiceAccount that no role is bound to. */
async function guestKubeconfig(dataDir: string): Promise<string> {
  const engine = await connectEngine({ dataDir });
  const namespace = "default";
  await engine.client.create(serviceAccounts, {
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: { name: "guest", namespace },
  });
  const response = await engine.client.transport.request({
    method: "POST",
    path: `/api/v1/namespaces/${namespace}/serviceaccounts/guest/token`,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} }),
  });
  const chunks: Uint8Array[] = [];
  for await (const chunk of response.body) chunks.push(chunk);
  await engine.close();
  const { status } = JSON.parse(Buffer.concat(chunks).toString()) as { status: { token: string } };
  const kubeconfig = parse(await readFile(path.join(dataDir, "pki/admin.kubeconfig"), "utf8")) as {
    users: { user: object }[];
  };
  for (const entry of kubeconfig.users) entry.user = { token: status.token };
  return JSON.stringify(kubeconfig);
}

async function make(engine: ExampleEngine, mistake: Mistake, place: Place): Promise<Reading> {
  const env = {
    ...(mistake.name === "no-engine" && { AGENT_SANDBOX_DATA_DIR: "/srv/sandboxes" }),
    ...(mistake.name === "no-permission" && { AGENT_SANDBOX_KUBECONFIG: place.guestKubeconfig }),
  };
  const options = { env, timeoutMs: runTimeoutMs, cwd: path.join(rootDir, "test/examples/mistakes") };
  const args = mistake.command.map((word) => (word === "BIG" ? place.bigFile : word.replace("HOME", place.home)));
  // The launcher's set-up needs root; who has none runs the installed command.
  const cli = [
    process.execPath,
    "--disable-warning=ExperimentalWarning",
    path.join(rootDir, "packages/cli/src/main.ts"),
  ];
  const programs: [Language, string[]][] = [
    ["command line", mistake.name === "no-root" ? asNobody([...cli, ...args]) : [...cli, ...args]],
    ["TypeScript", ["node", "typescript.ts", mistake.name]],
    ["Python", ["python", "python.py", mistake.name]],
    ["Go", [place.goProgram, mistake.name]],
  ];
  const made = await Promise.all(
    programs
      .slice(0, mistake.isCommandOnly === true ? 1 : programs.length)
      .map(async ([language, program]) => ({ language, outcome: await engine.run(program, options) })),
  );
  const said = Object.fromEntries(
    made.map(({ language, outcome }) => [language, readable(language, outcome).replaceAll(place.home, shownHome)]),
  );
  return { mistake, said, exitCode: made[0]?.outcome.exitCode ?? 0 };
}

/** Tests run as root; "nobody" is whom a user without it is like. The checkout, which may be closed to others, is open where nobody looks for it. */
function asNobody(argv: readonly string[]): string[] {
  const open = "/mnt";
  const script = `mount --bind "$1" ${open} && shift && cd / && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"`;
  const moved = argv.map((word) => (word.startsWith(rootDir) ? open + word.slice(rootDir.length) : word));
  return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", rootDir, ...moved];
}

/** The error itself, without the frames that a runtime prints around it and with the same names in every run. */
function readable(language: Language, { exitCode, stderr }: Outcome): string {
  if (exitCode === 0) return "no error";
  const lines = stderr.trimEnd().split("\n");
  const error = {
    "command line": () => lines.join("\n"),
    TypeScript: () => lines.find((line) => /^\w*Error: /.test(line)),
    Python: () => lines.findLast((line) => /^[\w.]*Error: /.test(line)),
    Go: () => lines.join("\n"),
  }[language]();
  // Whether a second attempt to pull is due already is a matter of moments.
  const atAnyMoment = (error ?? stderr).replaceAll(/Back-off pulling image "[^"]*": /g, "");
  return atAnyMoment.replaceAll(/\b(claim|box|sandbox)-[0-9a-f]{8}\b/g, "$1-1f2e3d4c");
}

/** The page: every mistake, who said what. */
export function renderPage(readings: readonly Reading[]): string {
  const sections = readings.map(({ mistake: { title, did, command }, said, exitCode }) => {
    const blocks = languages.flatMap((language) => {
      const text = said[language];
      return text === undefined ? [] : [`**${language}**\n\n\`\`\`text\n${text}\n\`\`\``];
    });
    const words = command.map((word) => (word === "BIG" ? "big" : word.replace("HOME", shownHome)));
    const shown = ["agent-sandbox", ...words].join(" ");
    return `## ${title}\n\nSomebody ${did}. On the command line: \`${shown}\`, exit code ${exitCode}.\n\n${blocks.join("\n\n")}`;
  });
  return `${intro}\n\n${sections.join("\n\n")}\n`;
}

const intro = `# Errors

What a user's mistakes look like. Every error says what went wrong and, unless the message does so itself, what to do. In
every language an error has a \`code\` that never changes its meaning, the \`message\`, a \`hint\` and, where a request was
sent, its id; the list of codes is \`spec/errors.yaml\`.

This page is written by \`node test/examples/mistakes.ts\`, which makes every mistake with the command line and with each SDK
against a real engine. Names that are random are shown as \`1f2e3d4c\`.`;

if (import.meta.main) {
  await using engine = await ExampleEngine.start();
  await writeFile(path.join(rootDir, "docs/errors.md"), renderPage(await collectReadings(engine)));
}
