// A registry of npm with the packages of /tools/packages, which takes its time; it says how many archives it gave.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";

const names = readdirSync("/tools/packages").map((file) => file.replace(/\.tgz$/, ""));
let given = 0;
createServer((request, response) => {
  const name = (request.url ?? "").slice(1).replace(/\.tgz$/, "");
  if (!names.includes(name)) return void response.writeHead(404).end();
  const archive = readFileSync(`/tools/packages/${name}.tgz`);
  if (request.url.endsWith(".tgz")) {
    given += 1;
    writeFileSync("/w/given", String(given));
    return void setTimeout(() => response.end(archive), 60);
  }
  const integrity = `sha512-${createHash("sha512").update(archive).digest("base64")}`;
  const dist = { tarball: `http://127.0.0.1:4873/${name}.tgz`, integrity };
  response.setHeader("content-type", "application/json");
  response.end(
    JSON.stringify({ name, "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": { name, version: "1.0.0", dist } } }),
  );
}).listen(4873, "127.0.0.1");
