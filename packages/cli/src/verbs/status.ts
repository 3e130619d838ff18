import { readEngineRecord } from "@agent-sandbox/sdk/engine/engine-record";
import { formatAge } from "../age.ts";
import type { Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { exitCodes } from "../exit-codes.ts";

/** Shows whether the engine of this machine runs. */
export const statusVerb: Verb = async (context, _args, flags) => {
  const { dataDir, output } = flags as { dataDir?: string; output?: "json" | "yaml" };
  const directory = dataDirOf(dataDir === undefined ? {} : { dataDir }, context);
  const record = await readEngineRecord(directory);
  const { stdout } = context;
  if (output !== undefined) {
    const { formatValue } = await import("../output/format-value.ts");
    stdout.write(
      await formatValue(
        record === undefined ? { running: false, dataDir: directory } : { running: true, ...record },
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
        "",
      ].join("\n"),
    );
  }
  return record === undefined ? exitCodes.noEngine : exitCodes.ok;
};
