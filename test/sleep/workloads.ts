import { expect } from "vitest";
import { until } from "../node/real-engine.ts";
import type { Box } from "./box.ts";

/** A program in a sandbox that must lose nothing while the sandbox sleeps. */
export interface Workload {
  start(box: Box): Promise<void>;
  /** Begins something that the next sleep is to cut in the middle. */
  begin?(box: Box): Promise<void>;
  /** Throws unless everything that it acknowledged is there, and the same processes go on. */
  check(box: Box): Promise<void>;
}

/** Runs a program apart from the command that starts it. */
const apart = (command: string): string => `setsid ${command} < /dev/null > /dev/null 2>&1 &`;

/** How far a wall clock inside may be off: a command's way in and out on a busy machine. */
const wallErrorMaxMs = 2_000;

/** A counter that writes each count down, with both clocks. */
export class Counter implements Workload {
  #pid: string | undefined;
  #seen = 0;

  async start(box: Box): Promise<void> {
    await box.sh(apart("python3 /tools/programs/counter.py"));
    await until(async () => (await box.sh("cat /w/counter || true")) !== "");
  }

  async check(box: Box): Promise<void> {
    const rows = await this.#rows(box);
    expect(rows.map(([, count]) => Number(count))).toEqual(rows.map((_row, index) => index + 1));
    expect(rows.length).toBeGreaterThanOrEqual(this.#seen);
    this.#pid ??= rows[0]?.[0];
    expect(new Set(rows.map(([pid]) => pid))).toEqual(new Set([this.#pid]));
    for (const clock of [2, 3]) {
      const moments = rows.map((row) => Number(row[clock]));
      const back = moments.findIndex((moment, index) => moment < (moments[index - 1] ?? 0));
      expect(back, `${moments[back - 1]} is followed by ${moments[back]}`).toBe(-1);
    }
    this.#seen = rows.length;
    await until(async () => (await this.#rows(box)).length > this.#seen);
    const wallMs = Number((await this.#rows(box)).at(-1)?.[2]) * 1000;
    expect(Math.abs(wallMs - Date.now())).toBeLessThan(wallErrorMaxMs);
  }

  async #rows(box: Box): Promise<string[][]> {
    const lines = (await box.sh("cat /w/counter")).split("\n").slice(0, -1);
    return lines.map((line) => line.split(" "));
  }
}

/** A Python REPL at a terminal, with state that each command adds to. */
export class PythonRepl implements Workload {
  #asked = 0;
  #first: string | undefined;

  async start(box: Box): Promise<void> {
    const terminal = `python3 -c "import pty; pty.spawn(['python3', '-iq'])"`;
    await box.sh(`mkfifo /w/repl.in; setsid ${terminal} 0<> /w/repl.in > /w/repl.out 2>&1 &`);
    await box.sh(`echo "import os; kept = [object()]; total = 0" > /w/repl.in`);
  }

  async check(box: Box): Promise<void> {
    this.#asked += 1;
    const mark = `mark-${this.#asked}`;
    await box.sh(`echo "total += 1; print('${mark}', os.getpid(), id(kept[0]), total)" > /w/repl.in`);
    let answer: RegExpExecArray | null = null;
    await until(async () => {
      answer = new RegExp(`^${mark} (\\d+ \\d+) (\\d+)\\r?$`, "m").exec(await box.sh("cat /w/repl.out"));
      return answer !== null;
    });
    const [, same, total] = answer ?? [];
    this.#first ??= same;
    expect(same).toBe(this.#first);
    expect(Number(total)).toBe(this.#asked);
  }
}

/** A Node server with timers, asked through the way that callers outside have. */
export class NodeServer implements Workload {
  readonly #ask: (box: Box) => Promise<string>;
  #last: ServerState | undefined;

  constructor(ask: (box: Box) => Promise<string>) {
    this.#ask = ask;
  }

  async start(box: Box): Promise<void> {
    await box.sh(apart("/tools/node /tools/programs/server.mjs"));
    const isUp = "import socket; socket.create_connection(('127.0.0.1', 8000))";
    await until(async () => (await box.engine.run(box.name, ["python3", "-c", isUp])).exitCode === 0);
  }

  async check(box: Box): Promise<void> {
    const state = JSON.parse(await this.#ask(box)) as ServerState;
    const last = this.#last ?? state;
    expect(state).toMatchObject({ pid: last.pid, drawn: last.drawn });
    expect(state.answered).toBeGreaterThanOrEqual(last.answered);
    expect(state.monotonicMs).toBeGreaterThanOrEqual(last.monotonicMs);
    expect(Math.abs(state.wallMs - Date.now())).toBeLessThan(wallErrorMaxMs);
    await until(async () => {
      const next = JSON.parse(await this.#ask(box)) as ServerState;
      this.#last = next;
      return next.interval > state.interval && next.chain > state.chain;
    });
  }
}

interface ServerState {
  readonly pid: number;
  readonly drawn: number;
  readonly answered: number;
  readonly interval: number;
  readonly chain: number;
  readonly wallMs: number;
  readonly monotonicMs: number;
}

/** A shell with background jobs, and a file that is open and deleted. */
export class ShellJobs implements Workload {
  #asked = 0;
  #pid: string | undefined;
  #ticks: readonly number[] = [0, 0];

  async start(box: Box): Promise<void> {
    await box.sh(`mkfifo /w/jobs.in; touch /w/jobs.out; ${apart("bash /tools/programs/jobs.sh")}`);
    await until(async () => (await box.sh("cat /w/job.2 || true")) !== "");
  }

  async check(box: Box): Promise<void> {
    this.#asked += 1;
    await box.sh(`echo word-${this.#asked} > /w/jobs.in`);
    let answers: string[] = [];
    await until(async () => {
      answers = (await box.sh("cat /w/jobs.out")).split("\n").slice(0, -1);
      return answers.length >= this.#asked;
    });
    const [pid, jobs, lines, kept, last, ...ticks] = answers[this.#asked - 1]?.split(" ") ?? [];
    this.#pid ??= pid;
    const all = String(this.#asked + 1);
    expect([pid, jobs, lines, kept, last]).toEqual([this.#pid, "2", all, all, `word-${this.#asked}`]);
    for (const [index, count] of ticks.entries()) expect(Number(count)).toBeGreaterThan(this.#ticks[index] ?? 0);
    this.#ticks = ticks.map(Number);
  }
}

/** SQLite that is written to all the time. */
export class SqliteWriter implements Workload {
  #last: { readonly pid: number; readonly acknowledged: number } | undefined;

  async start(box: Box): Promise<void> {
    await box.sh(apart("python3 /tools/programs/sqlite_writer.py"));
    await until(async () => (await box.sh("cat /w/sqlite.acknowledged || true")) !== "");
  }

  async check(box: Box): Promise<void> {
    const ask = async () => JSON.parse(await box.sh("python3 /tools/programs/sqlite_check.py")) as SqliteState;
    const state = await ask();
    expect(state).toMatchObject({ integrity: "ok", pid: this.#last?.pid ?? state.pid });
    expect(state.count).toBe(state.top);
    expect(state.top).toBeGreaterThanOrEqual(state.acknowledged);
    expect(state.acknowledged).toBeGreaterThanOrEqual(this.#last?.acknowledged ?? 0);
    await until(async () => (await ask()).acknowledged > state.acknowledged);
    this.#last = state;
  }
}

interface SqliteState {
  readonly pid: number;
  readonly acknowledged: number;
  readonly count: number;
  readonly top: number;
  readonly integrity: string;
}

/** PostgreSQL with one session that inserts all the time. */
export class PostgresWriter implements Workload {
  #last: PostgresState | undefined;

  async start(box: Box): Promise<void> {
    await box.sh("mkdir /w/pg && bash /tools/programs/postgres.sh");
    await until(async () => (await box.sh("cat /w/pg/acknowledged || true")) !== "").catch(async (cause: unknown) => {
      throw new Error(await box.sh("cat /w/pg-write.log /w/pg/*.log"), { cause });
    });
  }

  async check(box: Box): Promise<void> {
    const ask = async () => JSON.parse(await box.sh(`${asNobody} check`)) as PostgresState;
    const state = await ask();
    const last = this.#last ?? state;
    expect(state).toMatchObject({ missing: 0, broken: "0", postmaster: last.postmaster, started: last.started });
    expect(state.top).toBeGreaterThanOrEqual(state.acknowledged);
    expect(state.acknowledged).toBeGreaterThanOrEqual(last.acknowledged);
    await until(async () => (await ask()).acknowledged > state.acknowledged);
    this.#last = state;
  }
}

const asNobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups bash /w/pg.sh";

interface PostgresState {
  readonly acknowledged: number;
  readonly top: number;
  /** Numbers without a row. */
  readonly missing: number;
  /** Rows and index entries that PostgreSQL's own checks complain of. */
  readonly broken: string;
  readonly postmaster: number;
  readonly started: string;
}

/** `npm install` from a registry beside it, begun anew before each sleep. */
export class NpmInstall implements Workload {
  readonly #packages: readonly string[];
  #begun = 0;

  constructor(packages: readonly string[]) {
    this.#packages = packages;
  }

  async start(box: Box): Promise<void> {
    await box.sh(apart("/tools/node /tools/programs/registry.mjs"));
  }

  async begin(box: Box): Promise<void> {
    this.#begun += 1;
    const dependencies = Object.fromEntries(this.#packages.map((name) => [name, "1.0.0"]));
    const dir = `/w/npm-${this.#begun}`;
    const npm = `/tools/node /tools/npm/bin/npm-cli.js install --registry http://127.0.0.1:4873 --cache ${dir}/cache --no-audit --no-fund --maxsockets 2`;
    await box.sh(`mkdir ${dir} && echo '${JSON.stringify({ dependencies })}' > ${dir}/package.json && rm -f /w/given`);
    await box.sh(`cd ${dir} && ${apart(`sh -c '${npm} > log 2>&1; echo $? > ended'`)}`);
    await until(
      async () => Number(await box.sh("cat /w/given || true")) > (this.#begun - 1) * this.#packages.length + 3,
    );
    expect(await box.sh(`ls ${dir}`), "npm is to be cut in the middle").not.toContain("ended");
  }

  async check(box: Box): Promise<void> {
    if (this.#begun === 0) return;
    const dir = `/w/npm-${this.#begun}`;
    await until(async () => (await box.sh(`cat ${dir}/ended || true`)) !== "");
    expect(await box.sh(`cat ${dir}/ended; grep -i "err" ${dir}/log || true`)).toBe("0\n");
    const contents = (
      await box.sh(`cd ${dir}/node_modules && cat ${this.#packages.map((name) => `${name}/index.js`).join(" ")}`)
    ).split("\n");
    expect(contents.slice(0, -1)).toEqual(this.#packages.map((name) => `module.exports = "${name}";`));
  }
}
