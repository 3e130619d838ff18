import type { VerbDefinition } from "../verb-definition.ts";
import { allNamespacesFlag, engineFlags, outputFlag, selectorFlag, sleepFlags } from "./flags.ts";

const dataDirFlag = {
  flag: "--data-dir <dir>",
  text: "engine: the one of this data directory (AGENT_SANDBOX_DATA_DIR)",
};
const listFlags = [outputFlag, allNamespacesFlag, selectorFlag, ...engineFlags];

/** Verbs about what sandboxes are made from. */
export const supplyVerbs: readonly VerbDefinition[] = [
  {
    name: "image",
    summary: "images of the one-machine engine",
    verbs: [
      {
        name: "ls",
        summary: "list images",
        flags: [{ flag: "-o, --output <format>", text: "output format", choices: ["json", "name"] }, dataDirFlag],
        load: async () => (await import("../verbs/image.ts")).imageLsVerb,
      },
      {
        name: "pull",
        summary: "pull an image from its registry",
        args: "<image>",
        flags: [dataDirFlag],
        load: async () => (await import("../verbs/image.ts")).imagePullVerb,
      },
      {
        name: "load",
        summary: "load an OCI or Docker archive, an OCI layout directory, or - for standard input",
        args: "<archive>",
        flags: [{ flag: "--name <image>", text: "name for an archive that has none" }, dataDirFlag],
        load: async () => (await import("../verbs/image.ts")).imageLoadVerb,
      },
      {
        name: "rm",
        summary: "remove images",
        args: "<images...>",
        flags: [dataDirFlag],
        load: async () => (await import("../verbs/image.ts")).imageRmVerb,
      },
    ],
  },
  {
    name: "pool",
    summary: "warm pools: sandboxes that run and wait for claims",
    verbs: [
      {
        name: "ls",
        summary: "list pools",
        flags: listFlags,
        load: async () => (await import("../verbs/supply.ts")).poolLsVerb,
      },
      {
        name: "create",
        summary: "make a pool, with a template of its own where --image is given",
        args: "<name>",
        flags: [
          { flag: "--template <name>", text: "an existing template" },
          { flag: "--image <image>", text: "make a template of the same name with this image" },
          ...sleepFlags,
          { flag: "--size <n>", text: "how many wait", value: "1" },
          ...engineFlags,
        ],
        load: async () => (await import("../verbs/supply.ts")).poolCreateVerb,
      },
      {
        name: "scale",
        summary: "change how many wait",
        args: "<name> <size>",
        flags: engineFlags,
        load: async () => (await import("../verbs/supply.ts")).poolScaleVerb,
      },
      {
        name: "rm",
        summary: "delete pools",
        args: "<names...>",
        flags: engineFlags,
        load: async () => (await import("../verbs/supply.ts")).poolRmVerb,
      },
    ],
  },
  {
    name: "template",
    summary: "templates that pools are made from",
    verbs: [
      {
        name: "ls",
        summary: "list templates",
        flags: listFlags,
        load: async () => (await import("../verbs/supply.ts")).templateLsVerb,
      },
      {
        name: "create",
        summary: "make a template from an image",
        args: "<name>",
        flags: [
          { flag: "--image <image>", text: "image; default: this machine's own /usr" },
          ...sleepFlags,
          ...engineFlags,
        ],
        load: async () => (await import("../verbs/supply.ts")).templateCreateVerb,
      },
      {
        name: "rm",
        summary: "delete templates",
        args: "<names...>",
        flags: [{ flag: "--no-wait", text: "do not wait until they are gone" }, ...engineFlags],
        load: async () => (await import("../verbs/supply.ts")).templateRmVerb,
      },
    ],
  },
  {
    name: "claim",
    summary: "take a sandbox from a pool and print its name",
    args: "<pool>",
    flags: [
      { flag: "--name <name>", text: "name of the claim" },
      { flag: "--ttl <time>", text: "give it back after: 30m" },
      { flag: "-e, --env <name=value>", text: "environment variable, where the template allows it", repeat: true },
      outputFlag,
      ...engineFlags,
    ],
    load: async () => (await import("../verbs/claim.ts")).claimVerb,
  },
];
