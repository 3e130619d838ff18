import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { makeArchive, makeImage, type TestFile } from "../../packages/server/src/node/images/testing/test-image.ts";
import { sandboxdTarget } from "../../packages/server/src/node/pods/sandboxd-launch.ts";
import { readDevDir } from "../../scripts/checkout.ts";

/** Parts of the library that no program of an article needs; they are most of its size. */
const leftOut = new Set([
  "__pycache__",
  "ensurepip",
  "idlelib",
  "lib2to3",
  "site-packages",
  "test",
  "tkinter",
  "turtledemo",
]);

/** Programs of a shell that articles, and the ones who try what they say, use beside Python. */
const applets = ["cat", "dmesg", "echo", "hostname", "ls", "sh", "sleep"];

/**
 * An archive of an image called `python:3.11`, made of the tools' own Python: as in the original, the command is the interpreter. With `daemon`,
 * the file of sandboxd, it has that where a node of ours puts it, for nodes that do not.
 */
export async function pythonImage(daemon?: string): Promise<Buffer> {
  const python = path.join(readDevDir("python"), "bin/python");
  const where =
    "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))";
  const [executable = "", library = ""] = execFileSync(python, ["-c", where], { encoding: "utf8" }).split("\n");
  const busybox = readFileSync(path.join(readDevDir("servers"), "bin/busybox"));
  const files: Record<string, TestFile> = {
    "usr/local/bin/python3.11": readFileSync(executable),
    "usr/local/bin/python3": { link: "python3.11" },
    "usr/local/bin/python": { link: "python3.11" },
    "bin/busybox": busybox,
    ...Object.fromEntries(applets.map((name) => [`bin/${name}`, { link: "busybox" }])),
    ...sharedLibraries(executable),
    ...tree(library, "usr/local/lib/python3.11"),
    "tmp/.keep": "",
    ...(daemon !== undefined && { [sandboxdTarget.slice(1)]: readFileSync(daemon) }),
  };
  const image = await makeImage([files], {
    Env: ["PATH=/usr/local/bin:/bin", "PYTHONHOME=/usr/local", "LD_LIBRARY_PATH=/usr/local/lib"],
    Cmd: ["python3"],
  });
  return makeArchive("docker.io/library/python:3.11", image);
}

function sharedLibraries(executable: string): Record<string, TestFile> {
  const found = execFileSync("ldd", [executable], { encoding: "utf8" }).matchAll(/(?:=> )?(\/\S+) \(0x/g);
  return Object.fromEntries(
    [...found].map(([, file = ""]) => {
      // The loader is named by its path in every program; the others are looked up.
      const place = file.includes("/ld-linux") ? file.slice(1) : `usr/local/lib/${path.basename(file)}`;
      return [place, readFileSync(file)];
    }),
  );
}

function tree(from: string, to: string): Record<string, TestFile> {
  const files: Record<string, TestFile> = {};
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    if (leftOut.has(entry.name) || entry.name.startsWith("config-")) continue;
    const file = path.join(from, entry.name);
    if (entry.isDirectory()) Object.assign(files, tree(file, `${to}/${entry.name}`));
    else if (entry.isFile()) files[`${to}/${entry.name}`] = readFileSync(file);
  }
  return files;
}
