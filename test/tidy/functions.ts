const opening =
  /^(\s*)(?:export\s+)?(?:(?:async\s+)?function\b|(?:(?:static|override|async|get|set|private|public)\s+|\*|#)*[\w#[\]."]+\s*(?:<[^>]*>)?\(.*\).*\{$|(?:const|let)\s+\w+.*=>\s*\{$)/;
const notFunctions = /^\s*(?:if|for|while|switch|catch|describe|test|it|return|await|expect)\b/;

/**
 * Functions longer than `linesMax`, as readable lines. The formatter closes a block at the column where its first line
 * starts, so indentation alone tells where a function ends and no parser is needed.
 */
export function findLongFunctions(file: string, text: string, linesMax: number): string[] {
  const lines = text.split("\n");
  return lines.flatMap((line, start) => {
    const indent = opening.exec(line)?.[1];
    if (indent === undefined || notFunctions.test(line)) return [];
    const end = lines.findIndex(
      (other, index) =>
        index > start &&
        /^[})\]]/.test(other.slice(indent.length)) &&
        other.startsWith(indent) &&
        /\}[;,)]*$/.test(other.trimEnd()),
    );
    const length = end === -1 ? 0 : end - start + 1;
    return length > linesMax ? [`${file}:${start + 1} has ${length} lines`] : [];
  });
}
