/** Something between backticks that the repository does not have. */
export interface MissingSymbol {
  readonly document: string;
  readonly symbol: string;
}

export interface Repository {
  /** Paths of all files. */
  readonly files: readonly string[];
  /** Every word that occurs in a file that is not a document. */
  readonly words: ReadonlySet<string>;
}

/** Names of other systems that documents speak of and no source has to. */
const foreign = new Set(
  // Linux, systemd, HTTP
  "SCM_RIGHTS br_netfilter CLONE_VM CLONE_VFORK CLONE_CLEAR_SIGHAND execve setfsuid chown fchown fchmod FSCONFIG_SET_FD DynamicUser Referer".split(
    " ",
  ),
);

/** What a document sets in backticks and the repository has neither as a file or folder nor as a word of its sources. */
export function findMissingSymbols(document: string, text: string, repository: Repository): MissingSymbol[] {
  return codeSpans(text)
    .filter((symbol) => !exists(symbol, repository))
    .map((symbol) => ({ document, symbol }));
}

/** Inline code outside of fences. */
function codeSpans(text: string): string[] {
  const prose = text.replace(/^(```|~~~)[\s\S]*?^\1/gm, "");
  return [...new Set([...prose.matchAll(/(?<!`)`([^`\n]+)`(?!`)/g)].map(([, span = ""]) => span))];
}

function exists(symbol: string, { files, words }: Repository): boolean {
  if (isPath(symbol)) {
    const pattern = pathPattern(symbol);
    if (files.some((file) => pattern.test(file))) return true;
  }
  return wordsOf(symbol).every((word) => words.has(word) || foreign.has(word) || isKnownPrefix(word));

  function isKnownPrefix(word: string): boolean {
    return symbol.includes(`${word}*`) && [...words].some((known) => known.startsWith(word));
  }
}

function isPath(symbol: string): boolean {
  return /^[\w@.*<>{},/-]+$/.test(symbol) && (symbol.includes("/") || /\.\w+$/.test(symbol));
}

/** A path may leave out folders before it and name some of its parts by `*`, `<any>` or `{this,that}`. */
function pathPattern(symbol: string): RegExp {
  const source = symbol
    .replace(/^\.?\//, "")
    .replace(/\/$/, "")
    .replace(/[.+]/g, "\\$&")
    .replace(/<[^>]*>|\*+/g, "[^/]*")
    .replace(/\{([^}]*)\}/g, (_, choices: string) => `(?:${choices.replaceAll(",", "|")})`);
  return new RegExp(`(?:^|/)${source}(?:/|$)`);
}

/** The words of a span that can be looked up: placeholders, numbers and single letters say nothing. */
function wordsOf(symbol: string): string[] {
  return (symbol.replace(/<[^>]*>/g, " ").match(/[A-Za-z_][\w]*/g) ?? []).filter((word) => word.length > 2);
}
