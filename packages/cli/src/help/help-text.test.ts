import { expect, test } from "vitest";
import { groups } from "../definitions/definitions.ts";
import type { VerbDefinition } from "../verb-definition.ts";
import { helpText } from "./help-text.ts";
import { formatEntries, wrapText } from "./layout.ts";

const top = groups.flatMap(({ verbs }) => verbs);

function verbOf(name: string): VerbDefinition {
  const found = top.find((verb) => verb.name === name);
  if (found === undefined) throw new Error(`no verb ${name}`);
  return found;
}

/** Help breaks its lines; what is looked for may be on two. */
const flat = (text: string): string => text.replace(/\s+/g, " ");

test("helpText: every verb is in the command's help, with its summary", () => {
  const text = flat(helpText([], 80));
  for (const { name, summary } of top) {
    expect(text).toContain(` ${name} `);
    expect(text).toContain(summary);
  }
});

test("helpText: a verb's help has all of its definition", () => {
  const paths = top.flatMap((verb) => [[verb], ...(verb.verbs ?? []).map((child) => [verb, child])]);
  for (const path of paths) {
    const { summary, args = "", flags = [], verbs = [], examples = [] } = path.at(-1) ?? verbOf("ls");
    const text = flat(helpText(path, 80));
    const values = flags.flatMap(({ value, choices = [] }) => [...choices, ...(value === undefined ? [] : [value])]);
    const parts = [summary, args, ...flags.flatMap(({ flag, text: why }) => [flag, why]), ...values, ...examples];
    for (const part of [...parts, ...verbs.flatMap((verb) => [verb.name, verb.summary])])
      expect(text).toContain(flat(part));
  }
});

test("helpText: a verb", () => {
  expect(helpText([verbOf("port-forward")], 80)).toBe(`Usage: agent-sandbox port-forward [flags] <sandbox> <ports...>

make a sandbox's port reachable on this machine

Flags:
  --address <host>        where to listen (default: 127.0.0.1)
  -n, --namespace <name>  namespace; default: the context's, else 'default'
  --kubeconfig <file>     engine: a kubeconfig (AGENT_SANDBOX_KUBECONFIG)
  --context <name>        engine: a context of the kubeconfig
                          (AGENT_SANDBOX_CONTEXT)
  --data-dir <dir>        engine: the one of this data directory
                          (AGENT_SANDBOX_DATA_DIR)
  --router-url <url>      the engine's router (AGENT_SANDBOX_ROUTER_URL)
  -h, --help              show help

Examples:
  agent-sandbox port-forward dev 8888
  agent-sandbox port-forward dev 8000:80
`);
});

test("helpText: a verb with verbs of its own", () => {
  expect(helpText([verbOf("image")], 80)).toBe(`Usage: agent-sandbox image <verb> [flags] [arguments]

images of the one-machine engine

Flags:
  -h, --help              show help

Verbs:
  ls [flags]              list images
  pull [flags] <image>    pull an image from its registry
  load [flags] <archive>  load an OCI or Docker archive, an OCI layout
                          directory, or - for standard input
  rm [flags] <images...>  remove images
  help [verb]             show help of a verb
`);
});

test("helpText: limits of a flag stand behind its text", () => {
  const flags = [{ flag: "--level <level>", text: "how much", value: "b", choices: ["a", "b"], repeat: true }];
  expect(helpText([{ name: "x", summary: "y", flags }], 80)).toContain(
    "--level <level>  how much (may be repeated; choices: a, b; default: b)\n",
  );
});

test("wrapText: breaks between words, and leaves a word whole that is too long", () => {
  expect(wrapText("a bb ccc dddddddd e", 6)).toEqual(["a bb", "ccc", "dddddddd", "e"]);
  expect(wrapText("", 6)).toEqual([""]);
});

test("formatEntries: text is not broken where too little room is left", () => {
  const entry = { term: "term", text: "word ".repeat(20).trim() };
  expect(formatEntries([entry], { width: 40, termWidth: 10 }).split("\n")).toHaveLength(2);
  expect(formatEntries([entry], { width: 60, termWidth: 10 }).split("\n").length).toBeGreaterThan(2);
});
