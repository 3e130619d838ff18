// A coding agent: every file it writes and every command it runs stays in a sandbox of its own.
import { Sandbox } from "@agent-sandbox/sdk";
import { ScriptedModel } from "./scripted-model.ts";
import { solve } from "./solve.ts";
import { sandboxTools } from "./tools.ts";

const task = "Write slug.py with a function slug(title) that makes a URL slug. Prove it with tests.";

await using sandbox = await Sandbox.create({ workdir: "/workspace", memory: "512Mi" });
const answer = await solve({
  model: new ScriptedModel(),
  tools: sandboxTools(sandbox),
  task,
  turnsMax: 10,
  onStep: ({ call, result }) => console.log(`${call.tool} ${call.subject}: ${lastLine(result)}`),
});
console.log(`agent: ${answer}`);
console.log(await sandbox.files.readText("/workspace/slug.py"));

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}
