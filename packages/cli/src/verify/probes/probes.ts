import type { Probe } from "../probe.ts";
import { admissionProbes } from "./admission.ts";
import { escapeProbes } from "./escape.ts";
import { kernelProbes } from "./kernel.ts";
import { filesProbe } from "./limit-files.ts";
import { logsProbe } from "./limit-logs.ts";
import { limitProbes } from "./limits.ts";
import { neighbourProbes } from "./neighbours.ts";
import { networkProbes } from "./network.ts";
import { runtimeProbes } from "./runtime.ts";

/** Every probe, in the order of the report. */
export const probes: readonly Probe[] = [
  ...runtimeProbes,
  ...escapeProbes,
  ...kernelProbes,
  ...networkProbes,
  ...neighbourProbes,
  ...limitProbes,
  filesProbe,
  logsProbe,
  ...admissionProbes,
];
