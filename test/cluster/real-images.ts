import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { makeArchive, makeImage } from "../../packages/server/src/node/images/testing/test-image.ts";
import { readDevDir } from "../../scripts/checkout.ts";
import { programPath } from "./programs.ts";
import { realImages } from "./real-node-settings.ts";

/** Programs of the shell image; each is a link to one static program. */
const applets = [
  "cat",
  "chmod",
  "date",
  "dmesg",
  "echo",
  "env",
  "false",
  "hostname",
  "httpd",
  "id",
  "kill",
  "ls",
  "sleep",
  "test",
  "true",
  "uname",
  "wget",
];

/** Writes the images of the real node as archives for `ctr images import`; returns their files. */
export async function writeImages(dir: string): Promise<string[]> {
  const busybox = readFileSync(path.join(readDevDir("servers"), "bin/busybox"));
  const links = applets.map((name) => [`bin/${name}`, { link: "/bin/sh" }] as const);
  const pause = await makeImage([{ pause: readFileSync(programPath("pause")) }], { Entrypoint: ["/pause"] });
  const shell = await makeImage([{ "bin/sh": busybox, ...Object.fromEntries(links), "tmp/.keep": "" }], {
    Env: ["PATH=/bin"],
    Cmd: ["/bin/sh"],
  });
  const write = async (name: string, archive: Promise<Buffer>): Promise<string> => {
    const file = path.join(dir, name);
    writeFileSync(file, await archive);
    return file;
  };
  return [
    await write("pause.tar", makeArchive(realImages.pause, pause)),
    await write("shell.tar", makeArchive(realImages.shell, shell)),
  ];
}
