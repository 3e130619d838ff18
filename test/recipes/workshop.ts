import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { applyStep, type Recipe } from "./read-recipes.ts";

const rootDir = path.resolve(import.meta.dirname, "../..");

/** A copy of the repository in which recipes are tried. */
export class Workshop implements Disposable {
  readonly dir: string;

  private constructor(dir: string) {
    this.dir = dir;
  }

  static open(): Workshop {
    const workshop = new Workshop(mkdtempSync(path.join(os.tmpdir(), "as-recipes-")));
    const list = ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    const files = execFileSync("git", list, { cwd: rootDir, encoding: "utf8" }).split("\n");
    for (const file of files.filter((one) => one !== "" && existsSync(path.join(rootDir, one)))) {
      mkdirSync(path.dirname(path.join(workshop.dir, file)), { recursive: true });
      cpSync(path.join(rootDir, file), path.join(workshop.dir, file));
    }
    workshop.#linkModules();
    // Generators and the tidy checks ask git for the files.
    workshop.run("git", "init", "-q");
    return workshop;
  }

  /** Installed packages are those of the repository; its own packages are the copy's. */
  #linkModules(): void {
    const modules = path.join(this.dir, "node_modules");
    mkdirSync(path.join(modules, "@agent-sandbox"), { recursive: true });
    for (const name of readdirSync(path.join(rootDir, "node_modules"))) {
      if (name !== "@agent-sandbox") symlinkSync(path.join(rootDir, "node_modules", name), path.join(modules, name));
    }
    for (const name of readdirSync(path.join(rootDir, "packages"))) {
      symlinkSync(path.join(this.dir, "packages", name), path.join(modules, "@agent-sandbox", name));
    }
  }

  /** Carries a recipe's steps out. */
  follow({ steps }: Recipe): void {
    for (const step of steps) {
      const file = path.join(this.dir, step.file);
      const before = existsSync(file) ? readFileSync(file, "utf8") : undefined;
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, applyStep(before, step));
    }
  }

  /** Runs a command in the copy; throws with what it printed if it fails. */
  run(program: string, ...args: string[]): string {
    return this.runIn(".", program, ...args);
  }

  runIn(folder: string, program: string, ...args: string[]): string {
    const { PATH = "", NODE_OPTIONS: _outer, VITEST: _own, ...env } = process.env;
    const bin = path.join(rootDir, "node_modules/.bin");
    const child = spawnSync(program, args, {
      cwd: path.join(this.dir, folder),
      env: { ...env, PATH: `${bin}:${PATH}` },
      encoding: "utf8",
      maxBuffer: 64 << 20,
    });
    const output = `${child.stdout}${child.stderr}`;
    if (child.status !== 0)
      throw new Error(`${program} ${args.join(" ")} ended with ${child.status}:\n${output.slice(-6000)}`);
    return output;
  }

  [Symbol.dispose](): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}
