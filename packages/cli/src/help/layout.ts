/** Text is not broken into columns narrower than this: a word a line is harder to read than a line that is too long. */
const wrapMin = 40;

const indent = "  ";
const gap = "  ";

/** Something to be explained, and its explanation. */
export interface Entry {
  readonly term: string;
  readonly text: string;
}

/** Breaks a text into lines of at most `width` characters, between words; a longer word has a line of its own. */
export function wrapText(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** Terms in one column, their explanations in the next, broken into lines where `width` leaves room for that. */
export function formatEntries(entries: readonly Entry[], { width, termWidth }: { width: number; termWidth: number }) {
  const room = width - indent.length - termWidth - gap.length;
  return entries
    .map(({ term, text }) => {
      const lines = room < wrapMin ? [text] : wrapText(text, room);
      const further = `\n${" ".repeat(indent.length + termWidth + gap.length)}`;
      return `${indent}${term.padEnd(termWidth)}${gap}${lines.join(further)}\n`;
    })
    .join("");
}

/** The width of the widest term. */
export function termWidthOf(entries: readonly Entry[]): number {
  return Math.max(0, ...entries.map(({ term }) => term.length));
}
