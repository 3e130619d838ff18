// Adds to package-lock.json the optional platform packages that npm left out because the registry in use does not carry
// them. Without their entries `npm ci` calls the lock out of date; with them it skips them, as it skips every foreign platform.
//
//   npm install --package-lock-only && node scripts/complete-lock.mjs
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

const file = path.resolve(import.meta.dirname, "../package-lock.json");
const lock = JSON.parse(readFileSync(file, "utf8"));
const systems = /(?:^|[-/])(aix|android|darwin|freebsd|linux|netbsd|openbsd|openharmony|sunos|win32)(?:-|$)/;
const processors = /(arm64|x64|ia32|arm|ppc64|riscv64|s390x|loong64|mips64el|wasm32)/;

for (const [where, entry] of Object.entries({ ...lock.packages })) {
  for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
    const isThere = [`node_modules/${name}`, `${where}/node_modules/${name}`].some((key) => lock.packages[key]);
    if (!isThere) lock.packages[`node_modules/${name}`] = foreignPackage(name, version, entry.dev);
  }
}
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);

function foreignPackage(name, version, dev) {
  const os = systems.exec(name)?.[1];
  const cpu = processors.exec(name.split("/").at(-1))?.[1];
  if (os === undefined && cpu === undefined)
    throw new Error(`${name}@${version} is for no platform by its name; is the registry reachable?`);
  return {
    version,
    ...(dev && { dev }),
    optional: true,
    ...(cpu && { cpu: [cpu] }),
    ...(os && { os: [os] }),
    ...(name.includes("musl") && { libc: ["musl"] }),
  };
}
