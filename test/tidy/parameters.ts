const head =
  /(?:^|\n)[ \t]*(?:export )?(?:(?:async )?function\*? (\w+)|(?:(?:static|async|override|\*) ?)*(#?\w+))\s*(?:<[^(]*?>)?\(([^)]*(?:\([^)]*\)[^)]*)*)\)\s*(?::[^=\n{;]+)?\s*\{/g;
const notFunctions = /^(?:if|for|while|switch|catch|return)$/;

/** Functions and methods with more than `most` parameters, as readable lines. An AbortSignal does not count: it is always last. */
export function findManyParameters(file: string, text: string, most: number): string[] {
  return [...text.matchAll(head)].flatMap(([, plain, method, list = ""]) => {
    const name = plain ?? method ?? "";
    const count = partsOf(list).filter((part) => !/^signal\??:/.test(part)).length;
    return notFunctions.test(name) || count <= most ? [] : [`${file}: ${name} has ${count} parameters`];
  });
}

/** The parameters of a list, commas within braces, brackets and generics aside. */
function partsOf(list: string): string[] {
  const parts = [""];
  let depth = 0;
  for (const [index, letter] of list.split("").entries()) {
    if ("([{<".includes(letter)) depth += 1;
    if (")]}>".includes(letter) && list[index - 1] !== "=") depth -= 1;
    if (letter === "," && depth === 0) parts.push("");
    else parts[parts.length - 1] += letter;
  }
  return parts.map((part) => part.trim()).filter((part) => part !== "");
}
