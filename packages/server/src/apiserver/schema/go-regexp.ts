const compiled = new Map<string, RegExp | undefined>();

/** Patterns compiled at most; schemas are few and a rule may build patterns from input. */
const compiledMax = 4_096;

/** A Go (RE2) pattern as a JavaScript one; undefined when it cannot be compiled. */
export function goRegExp(pattern: string): RegExp | undefined {
  const known = compiled.get(pattern);
  if (known !== undefined || compiled.has(pattern)) return known;
  if (compiled.size >= compiledMax) compiled.clear();
  const expression = compile(pattern);
  compiled.set(pattern, expression);
  return expression;
}

/** Why a pattern cannot be compiled, in the words of Go for the mistakes that people make; undefined when it can. */
export function goRegExpProblem(pattern: string): string | undefined {
  if (goRegExp(pattern) !== undefined) return undefined;
  const plain = pattern.replaceAll(/\\./g, "");
  const repetition = /^[*+?]|(?<=[(|])[*+?](?!:)/.exec(plain);
  if (repetition !== null) return `missing argument to repetition operator: \`${repetition[0]}\``;
  const bracket = /\[[^\]]*$/.exec(plain);
  if (bracket !== null) return `missing closing ]: \`${bracket[0]}\``;
  const count = (sign: string): number => plain.split(sign).length - 1;
  if (count("(") > count(")")) return `missing closing ): \`${pattern}\``;
  if (count(")") > count("(")) return `unexpected ): \`${pattern}\``;
  return `invalid pattern: \`${pattern}\``;
}

function compile(pattern: string): RegExp | undefined {
  const { source, flags } = translate(pattern);
  for (const extra of ["u", ""]) {
    try {
      return new RegExp(source, flags + extra);
    } catch {
      // The next attempt is without Unicode mode, which refuses needless escapes that Go allows.
    }
  }
  return undefined;
}

/** Leading flags, `\A`, `\z`, `\Q..\E`, named groups and POSIX classes are what the two dialects differ in. */
function translate(pattern: string): { source: string; flags: string } {
  const leading = /^\(\?([ims]+)\)/.exec(pattern);
  const flags = leading?.[1] ?? "";
  const body = leading === null ? pattern : pattern.slice(leading[0].length);
  const source = body
    .replace(/\\Q(.*?)(\\E|$)/g, (_all, text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .replaceAll("\\A", "^")
    .replaceAll("\\z", "$")
    .replaceAll("(?P<", "(?<")
    .replace(/\[:(\w+):\]/g, (_all, name: string) => posixClasses[name] ?? "");
  return { source, flags };
}

const posixClasses: Readonly<Record<string, string>> = {
  alnum: "0-9A-Za-z",
  alpha: "A-Za-z",
  digit: "0-9",
  lower: "a-z",
  upper: "A-Z",
  space: "\\t\\n\\v\\f\\r ",
  xdigit: "0-9A-Fa-f",
  word: "0-9A-Za-z_",
};
