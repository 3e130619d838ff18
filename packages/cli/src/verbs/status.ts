import { sandboxes } from "@agent-sandbox/api/resource";
import { readEngineRecord } from "@agent-sandbox/sdk/engine/engine-record";
import { formatAge } from "../age.ts";
import { type Context, openEngine, type Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { exitCodes } from "../exit-codes.ts";
import { costLines, type SandboxCosts, sumCosts } from "../objects/sandbox-costs.ts";

/** An engine that is just being started or stopped answers soon or not at all. */
const answerMaxMs = 5_000;

/** Shows whether the engine of this machine runs, and what its sandboxes cost. */
export const statusVerb: Verb = async (context, _args, flags) => {
  const { dataDir, output } = flags as { dataDir?: string; output?: "json" | "yaml" };
  const directory = dataDirOf(dataDir === undefined ? {} : { dataDir }, context);
  const record = await readEngineRecord(directory);
  const { stdout } = context;
  const costs = record === undefined ? undefined : await readCosts(context, directory);
  if (output !== undefined) {
    const { formatValue } = await import("../output/format-value.ts");
    stdout.write(
      await formatValue(
        record === undefined ? { running: false, dataDir: directory } : { running: true, ...record, ...costs },
        output,
      ),
    );
  } else if (record === undefined) {
    stdout.write(`not running (${directory}); start it with: agent-sandbox up --detach\n`);
  } else {
    const age = formatAge(context.nowMs() - Date.parse(record.startedAt));
    stdout.write(
      [
        `running for ${age}, version ${record.version}, pid ${record.supervisor.pid}`,
        `API         ${record.apiUrl}`,
        `router      ${record.routerUrl}`,
        `metrics     ${record.metricsUrl}`,
        `kubeconfig  ${record.kubeconfig}`,
        `data        ${record.dataDir}`,
        ...(costs?.sandboxes === undefined
          ? [`sandboxes   not known: ${costs?.problem ?? ""}`]
          : costLines(costs.sandboxes)),
        "",
      ].join("\n"),
    );
  }
  return record === undefined ? exitCodes.noEngine : exitCodes.ok;
};

type Answer = { readonly sandboxes: SandboxCosts } | { readonly sandboxes?: undefined; readonly problem: string };

/** What the engine's API says of all sandboxes; that it does not answer is part of its status. */
async function readCosts({ signal }: Context, dataDir: string): Promise<Answer> {
  try {
    const { client } = await openEngine({ dataDir });
    const { items } = await client.list(sandboxes, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(answerMaxMs)]),
    });
    return { sandboxes: sumCosts(items) };
  } catch (error) {
    signal.throwIfAborted();
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}
