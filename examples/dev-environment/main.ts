// A development environment: the project and its dev server in a sandbox, the page in a browser here.
import path from "node:path";
import { Sandbox } from "@agent-sandbox/sdk";
import { Browser } from "./browser.ts";

const port = 5173;

await using sandbox = await Sandbox.create({ volumes: [{ path: "/project", size: "64Mi" }], workdir: "/project" });
await sandbox.files.upload(path.join(import.meta.dirname, "project"), "/project");
const server = await sandbox.spawn(["python3", "-u", "dev_server.py"], { tag: "dev server" });
for await (const chunk of server.stdout) {
  const text = new TextDecoder().decode(chunk).trim();
  console.log(`server: ${text}`);
  if (text.includes("listening")) break;
}

const link = await sandbox.url(port);
console.log(`page: ${link.origin}${link.pathname}`);
const browser = await Browser.open(link);
console.log(`shown: ${headline(await browser.load())}`);

for await (const message of browser.messages("hmr")) {
  console.log(`told: ${message}`);
  if (message === "connected") await saveVersion(2);
  else break;
}
console.log(`shown: ${headline(await browser.load())}`);
await server.kill();

/** What an editor's save does. */
async function saveVersion(version: number): Promise<void> {
  const page = await sandbox.files.readText("/project/index.html");
  await sandbox.files.write("/project/index.html", page.replace(/version \d+/, `version ${version}`));
}

function headline(html: string): string {
  return /<h1>(.*)<\/h1>/.exec(html)?.[1] ?? "no headline";
}
