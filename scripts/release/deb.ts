import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { launcher } from "./launcher.ts";
import { bytesOf, debianArchitectures, layout, type ReleaseFile, type ReleaseTree, sortedPaths } from "./layout.ts";
import { systemdUnit } from "./systemd-unit.ts";
import { tarballBytes } from "./tarball.ts";
import { coreTree, type ReleaseInput } from "./tree.ts";

/** Where the package puts what a tarball unpacks to. */
const home = "usr/lib/agent-sandbox";

/** Debian's places for what lies below `share/` in a tarball; the rest is in `home`. */
const places: Readonly<Record<string, string>> = {
  [layout.completions.bash]: "usr/share/bash-completion/completions/agent-sandbox",
  [layout.completions.zsh]: "usr/share/zsh/vendor-completions/_agent-sandbox",
  [layout.completions.fish]: "usr/share/fish/vendor_completions.d/agent-sandbox.fish",
};

/** `0.2.0-rc.1` sorts before `0.2.0` for dpkg only with a tilde. */
export function debianVersion(version: string): string {
  return version.replaceAll("-", "~");
}

/** The name that the package of an architecture has. */
export function debName({ version, arch }: Pick<ReleaseInput, "version" | "arch">): string {
  return `agent-sandbox_${debianVersion(version)}_${debianArchitectures[arch]}.deb`;
}

/** Writes the Debian package of an architecture: the same bytes for the same input. */
export async function writeDeb(outDir: string, input: ReleaseInput, epoch: number): Promise<void> {
  const files = packageTree(input, epoch);
  const options = { prefix: "./", epoch };
  const members: readonly [string, Buffer][] = [
    ["debian-binary", Buffer.from("2.0\n")],
    ["control.tar.gz", await tarballBytes(controlTree(input, files), options)],
    ["data.tar.gz", await tarballBytes(files, options)],
  ];
  writeFileSync(path.join(outDir, debName(input)), arArchive(members, epoch));
}

/** An archive as `ar` writes it: a line of text about each member, and members at even places. */
function arArchive(members: readonly (readonly [string, Buffer])[], epoch: number): Buffer {
  const parts = members.flatMap(([name, bytes]) => {
    const fields = [name.padEnd(16), String(epoch).padEnd(12), "0".padEnd(6), "0".padEnd(6), "100644".padEnd(8)];
    const header = Buffer.from(`${fields.join("")}${String(bytes.length).padEnd(10)}\`\n`);
    return [header, bytes, Buffer.alloc(bytes.length % 2, "\n")];
  });
  return Buffer.concat([Buffer.from("!<arch>\n"), ...parts]);
}

/** What the package installs. */
function packageTree(input: ReleaseInput, epoch: number): ReleaseTree {
  const files = new Map<string, ReleaseFile>();
  const core = coreTree(input);
  for (const [name, file] of core) {
    const place = placeOf(name);
    if (place !== undefined) files.set(place, file);
  }
  const manual = gzipSync(bytesOf(fileOf(core, layout.manual)), { level: 9 });
  files.set("usr/share/man/man1/agent-sandbox.1.gz", { mode: 0o644, content: manual });
  files.set("usr/bin/agent-sandbox", { mode: 0o755, content: Buffer.from(launcher(`/${home}`)) });
  files.set("usr/lib/systemd/system/agent-sandbox.service", text(systemdUnit(unitPlaces)));
  files.set(defaultsFile, text(defaults));
  files.set("usr/share/doc/agent-sandbox/copyright", text(copyright));
  files.set("usr/share/lintian/overrides/agent-sandbox", text(lintianOverrides));
  files.set("usr/share/doc/agent-sandbox/changelog.gz", {
    mode: 0o644,
    content: gzipSync(changelog(input.version, epoch), { level: 9 }),
  });
  return files;
}

function placeOf(name: string): string | undefined {
  if (name === layout.manual || name === `${layout.doc}/LICENSE`) return undefined;
  if (name.startsWith(`${layout.deploy}/`)) return `usr/share/agent-sandbox/${name.slice("share/".length)}`;
  if (name.startsWith(`${layout.doc}/`)) return `usr/share/doc/agent-sandbox/${path.basename(name)}`;
  return places[name] ?? `${home}/${name}`;
}

function fileOf(tree: ReleaseTree, name: string): ReleaseFile {
  const file = tree.get(name);
  if (file === undefined) throw new Error(`the release has no ${name}`);
  return file;
}

const defaultsFile = "etc/default/agent-sandbox";
const defaults = `# Flags that the service gives to "agent-sandbox up"; see agent-sandbox(1).
AGENT_SANDBOX_OPTIONS=
`;

const unitPlaces = {
  comment: "# The one-machine engine as a service.\n",
  documentation: "man:agent-sandbox(1)",
  command: "/usr/bin/agent-sandbox",
  defaultsFile: `/${defaultsFile}`,
};

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: agent-sandbox
Comment: Node is in /${home}/${layout.node}, its licence in node.LICENSE; the
 licences of the npm packages that are compiled in are in npm-packages.licenses.

Files: *
Copyright: 2026 the authors of Agent Sandbox
License: Apache-2.0
 The text of the licence is in /usr/share/common-licenses/Apache-2.0.
`;

/** What lintian asks for and this package does not do, each with its reason. */
const lintianOverrides = `# Programs of Go that run before and inside sandboxes, where no library is.
agent-sandbox: statically-linked-binary *
# Node as its project builds it: the bytes that were tested.
agent-sandbox: embedded-library *
agent-sandbox: hardening-no-pie *
agent-sandbox: unstripped-binary-or-object *
# Its date says when what sandboxes see of this machine's /usr has changed.
agent-sandbox: uses-dpkg-database-directly *
`;

function changelog(version: string, epoch: number): string {
  const date = new Date(epoch * 1000).toUTCString().replace("GMT", "+0000");
  return `agent-sandbox (${debianVersion(version)}) unstable; urgency=medium

  * See CHANGELOG.md beside this file.

 -- ${maintainer}  ${date}
`;
}

const maintainer = "Agent Sandbox maintainers <maintainers@agent-sandbox.dev>";

/** The control files of the package. */
function controlTree(input: ReleaseInput, files: ReleaseTree): ReleaseTree {
  const sums = sortedPaths(files)
    .filter((name) => name !== defaultsFile)
    .map(
      (name) =>
        `${createHash("md5")
          .update(bytesOf(fileOf(files, name)))
          .digest("hex")}  ${name}\n`,
    );
  const script = (body: string): ReleaseFile => ({ mode: 0o755, content: Buffer.from(`#!/bin/sh\nset -e\n${body}`) });
  return new Map<string, ReleaseFile>([
    ["control", text(control(input, files))],
    ["conffiles", text(`/${defaultsFile}\n`)],
    ["md5sums", text(sums.join(""))],
    ["postinst", script(postinst)],
    ["prerm", script(prerm)],
    ["postrm", script(postrm)],
  ]);
}

/** The C and C++ libraries are what Node was linked with; the two programs are what the helper starts; passwd has useradd. */
const depends = "libc6 (>= 2.28), libgcc-s1, libstdc++6, nftables, e2fsprogs, passwd";

function control({ version, arch }: ReleaseInput, files: ReleaseTree): string {
  const bytes = [...files.values()].reduce((sum, file) => sum + bytesOf(file).length, 0);
  return `Package: agent-sandbox
Version: ${debianVersion(version)}
Architecture: ${debianArchitectures[arch]}
Maintainer: ${maintainer}
Installed-Size: ${Math.ceil(bytes / 1024)}
Depends: ${depends}
Section: admin
Priority: optional
Description: isolated, stateful Linux environments for agents
 Runs untrusted code in sandboxes with a kernel of their own (gVisor), on
 this machine or as a node of a Kubernetes cluster. A sandbox has a name, a
 file system that stays, a network with a policy, and sleeps when it is idle.
 .
 The package brings its own Node and gVisor. The service agent-sandbox is
 installed and not enabled: "agent-sandbox run" starts an engine where none
 runs.
`;
}

// A restarted engine finds its sandboxes again, so that an upgrade of a running service ends none; one that was not started stays so.
const postinst = `if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -n "$2" ]; then systemctl try-restart agent-sandbox.service; fi
fi
`;

// Behind an upgrade the sandboxes run on. Behind a removal nothing would be left that could end them: down ends engine and sandboxes,
// and keeps what they wrote.
const prerm = `if [ "$1" = remove ]; then
  if [ -d /run/systemd/system ]; then systemctl disable --now agent-sandbox.service || true; fi
  if [ -d /var/lib/agent-sandbox ]; then agent-sandbox down || true; fi
fi
`;

const postrm = `if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
  rm -rf --one-file-system /var/lib/agent-sandbox /var/cache/agent-sandbox
fi
`;

function text(content: string): ReleaseFile {
  return { mode: 0o644, content: Buffer.from(content) };
}
