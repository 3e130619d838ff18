/** Figures of speech that a reader must decode; the mechanism is named instead. Documents break lines between words. */
const figures =
  /\b(?:whoever|patience|enemy|enemies|without\s+a\s+word|(?:is|are|was|were)\s+told(?!\s+(?:apart|from)\b))\b/i;

/** Where STYLE.md names them. */
const listOfFigures = /no figures of speech \([^)]*\)/g;

/** Comments of one file that use a figure of speech of the list in STYLE.md. */
export function findFigures(file: string, text: string): string[] {
  const comment = file.endsWith(".py") ? /^\s*#|\s#\s/ : /^\s*(?:\/\/|\/?\*)|\s\/\/\s/;
  return text.split("\n").flatMap((line, index) => {
    const found = comment.test(line) ? figures.exec(line) : null;
    return found === null ? [] : [`${file}:${index + 1} says "${found[0]}"`];
  });
}

/** Places of a document that use one, in sentences that go over a line's end too. */
export function findFiguresInText(file: string, text: string): string[] {
  const own = text.replaceAll(listOfFigures, (list) => list.replaceAll(/[^\n]/g, " "));
  return [...own.matchAll(new RegExp(figures, "gi"))].map(({ index, 0: found }) => {
    const line = own.slice(0, index).split("\n").length;
    return `${file}:${line} says "${found.replaceAll(/\s+/g, " ")}"`;
  });
}
