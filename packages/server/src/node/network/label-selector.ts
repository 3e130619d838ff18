import { type LabelSelector, labelSelectorOf, matchesLabels, type ParsedLabelSelector } from "@agent-sandbox/api";

type Labels = Readonly<Record<string, string>>;

/** Selectors as they were read; a policy's are asked about for every pair of sandboxes. */
const read = new WeakMap<LabelSelector, ParsedLabelSelector | "unreadable">();

/** Whether labels satisfy a selector; one that cannot be parsed is satisfied by none. */
export function matchesSelector(selector: LabelSelector, labels: Labels): boolean {
  const known = readSelector(selector);
  return known !== "unreadable" && matchesLabels(known, labels);
}

/** Whether a selector says anything that this code understands. */
export function isReadable(selector: LabelSelector): boolean {
  return readSelector(selector) !== "unreadable";
}

function readSelector(selector: LabelSelector): ParsedLabelSelector | "unreadable" {
  const known = read.get(selector) ?? parse(selector);
  read.set(selector, known);
  return known;
}

function parse(selector: LabelSelector): ParsedLabelSelector | "unreadable" {
  try {
    return labelSelectorOf(selector);
  } catch (error) {
    if (error instanceof SyntaxError) return "unreadable";
    throw error;
  }
}
