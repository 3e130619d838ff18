/**
 * Replaces `$(NAME)` by its value, as Kubernetes does in commands, arguments and variables: `$$` is a literal dollar
 * sign, and a reference to an unknown name stays as it is written.
 */
export function expandReferences(text: string, values: ReadonlyMap<string, string>): string {
  let result = "";
  for (let at = 0; at < text.length; at++) {
    const next = text[at + 1];
    if (text[at] !== "$" || next === undefined) {
      result += text[at];
    } else if (next === "$") {
      result += "$";
      at++;
    } else if (next === "(") {
      const end = text.indexOf(")", at + 2);
      const name = end < 0 ? undefined : text.slice(at + 2, end);
      if (name === undefined) {
        result += text[at];
        continue;
      }
      result += values.get(name) ?? `$(${name})`;
      at = end;
    } else {
      result += `$${next}`;
      at++;
    }
  }
  return result;
}
