/** One comparison of one field with a value. */
export interface FieldRequirement {
  readonly field: string;
  readonly operator: "=" | "!=";
  readonly value: string;
}

/** Parses the form of the `fieldSelector` query parameter; throws a SyntaxError that names what is wrong. */
export function parseFieldSelector(text: string): readonly FieldRequirement[] {
  return splitUnescaped(text)
    .filter((term) => term !== "")
    .map(parseTerm);
}

/** Whether all comparisons hold; `valueOf` gives a field's text, and the empty text where the field is not set. */
export function matchesFields(selector: readonly FieldRequirement[], valueOf: (field: string) => string): boolean {
  return selector.every(({ field, operator, value }) => (valueOf(field) === value) === (operator === "="));
}

function parseTerm(term: string): FieldRequirement {
  // The first operator ends the field: everything after it is the value, in which operators must be escaped.
  const match = /^([^=!\\]+)(!=|==|=)(.*)$/s.exec(term);
  if (match === null) throw new SyntaxError(`field selector "${term}" needs =, == or !=, as in metadata.name=value`);
  const [, name = "", operator, value = ""] = match;
  const field = name.trim();
  if (field === "") throw new SyntaxError(`field selector "${term}" names no field, as in metadata.name=value`);
  return { field, operator: operator === "!=" ? "!=" : "=", value: unescapeValue(value) };
}

function splitUnescaped(text: string): string[] {
  const terms: string[] = [];
  let current = "";
  for (let index = 0; index < text.length; index++) {
    const character = text.charAt(index);
    if (character === ",") {
      terms.push(current);
      current = "";
      continue;
    }
    current += character;
    if (character === "\\") current += text.charAt(++index);
  }
  return [...terms, current];
}

function unescapeValue(value: string): string {
  let out = "";
  for (let index = 0; index < value.length; index++) {
    const character = value.charAt(index);
    if (character === "," || character === "=")
      throw new SyntaxError(`field selector: "${character}" in "${value}" must be escaped`);
    if (character !== "\\") {
      out += character;
      continue;
    }
    const escaped = value.charAt(++index);
    if (!["\\", ",", "="].includes(escaped)) throw new SyntaxError(`field selector: "\\${escaped}" is no escape`);
    out += escaped;
  }
  return out;
}
