/** One step of a recipe: text that goes into a file. */
export interface Step {
  readonly file: string;
  /** The line behind or before which the text goes; absent: the file is new. */
  readonly anchor?: { readonly side: "after" | "before"; readonly line: string };
  readonly text: string;
}

/** A section of CONTRIBUTING.md that says how something is added. */
export interface Recipe {
  readonly title: string;
  readonly steps: readonly Step[];
}

const section = /^### (.+)\n([\s\S]*?)(?=^##|(?![\s\S]))/gm;
const step = /^\d+\. `([^`]+)`(?:, (after|before) `([^`\n]+)`|, new)[^\n]*:\n\n? *```\w*\n([\s\S]*?)^ *```/gm;

/** The recipes of a document, in its order. */
export function readRecipes(document: string): Recipe[] {
  return [...document.matchAll(section)].map(([, title = "", body = ""]) => ({
    title,
    steps: [...body.matchAll(step)].map(([, file = "", side, line, text = ""]) => ({
      file,
      ...(side !== undefined && line !== undefined && { anchor: { side: side as "after" | "before", line } }),
      text: withoutIndent(text),
    })),
  }));
}

/** A file's text with a step's text in it. Throws where the anchor is not one line of it. */
export function applyStep(before: string | undefined, { file, anchor, text }: Step): string {
  if (anchor === undefined) {
    if (before !== undefined) throw new Error(`${file} is there already`);
    return text;
  }
  const lines = (before ?? "").split("\n");
  const places = lines.flatMap((line, index) => (line.trim() === anchor.line.trim() ? [index] : []));
  const [place] = places;
  if (place === undefined || places.length > 1)
    throw new Error(`${file} has ${places.length} lines that are ${anchor.line}`);
  const at = anchor.side === "after" ? place + 1 : place;
  return [...lines.slice(0, at), text.replace(/\n$/, ""), ...lines.slice(at)].join("\n");
}

/** A fenced block in a list is indented by the list. */
function withoutIndent(text: string): string {
  return text.replace(/^ {3}/gm, "");
}
