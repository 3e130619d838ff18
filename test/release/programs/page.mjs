// What a page in a browser would do: commands and files through the router with `fetch` and a token.
import { connectThroughRouter } from "@agent-sandbox/sdk/browser";

const [routerUrl, token] = process.argv.slice(2);
const box = connectThroughRouter({
  routerUrl,
  target: { namespace: "default", name: "page" },
  authorize: async () => ({ authorization: `Bearer ${token}` }),
});
console.log((await box.run("echo hello from $(uname -s)")).stdout.trim());
await box.files.write("/tmp/page.txt", "kept");
console.log(await box.files.readText("/tmp/page.txt"));
