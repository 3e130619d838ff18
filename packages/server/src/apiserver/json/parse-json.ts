import type { JsonObject, JsonValue } from "@agent-sandbox/api";

/** Deeper documents are refused, as Kubernetes' decoder refuses them, so that recursion stays bounded. */
const depthMax = 1_000;

/** Thrown for a body that is not acceptable JSON; the message is safe to show. */
export class JsonSyntaxError extends Error {
  override readonly name = "JsonSyntaxError";
}

/** A parsed document and the paths of keys that occurred twice (the last one wins). */
export interface ParsedJson {
  readonly value: JsonValue;
  readonly duplicates: readonly string[];
}

/**
 * Parses JSON from an untrusted peer: strict UTF-8, bounded depth, no key that reaches a prototype, no number that
 * a double cannot hold, and a record of duplicate keys.
 */
export function parseJson(bytes: Uint8Array): ParsedJson {
  return new JsonParser(decodeUtf8(bytes)).parse();
}

/** Parses JSON text with the same rules as `parseJson`. */
export function parseJsonText(text: string): ParsedJson {
  return new JsonParser(text).parse();
}

/** Decodes bytes that must be valid UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (cause) {
    throw new JsonSyntaxError("body is not valid UTF-8", { cause });
  }
}

/** A byte order mark is kept: it is part of a string of a protobuf message, and no JSON begins with one. */
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const numberPattern = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;

class JsonParser {
  readonly #text: string;
  readonly #duplicates: string[] = [];
  readonly #path: (string | number)[] = [];
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  parse(): ParsedJson {
    const value = this.#value();
    this.#space();
    if (this.#at < this.#text.length) throw this.#unexpected();
    return { value, duplicates: this.#duplicates };
  }

  #value(): JsonValue {
    this.#space();
    const code = this.#text.charCodeAt(this.#at);
    switch (code) {
      case 0x7b:
        return this.#object();
      case 0x5b:
        return this.#list();
      case 0x22:
        return this.#string();
      case 0x74:
        return this.#word("true", true);
      case 0x66:
        return this.#word("false", false);
      case 0x6e:
        return this.#word("null", null);
      default:
        return this.#number();
    }
  }

  #object(): JsonObject {
    const object: JsonObject = {};
    this.#at++;
    if (this.#closes(0x7d)) return object;
    for (;;) {
      this.#space();
      if (this.#text.charCodeAt(this.#at) !== 0x22) throw this.#unexpected();
      const key = this.#string();
      this.#space();
      if (this.#text.charCodeAt(this.#at) !== 0x3a) throw this.#unexpected();
      this.#at++;
      this.#enter(key);
      this.#noteKey(object, key);
      object[key] = this.#value();
      this.#path.pop();
      if (this.#endsAfterItem(0x7d)) return object;
    }
  }

  #noteKey(object: JsonObject, key: string): void {
    if (key === "__proto__") throw new JsonSyntaxError('the key "__proto__" is not allowed');
    if (Object.hasOwn(object, key)) this.#duplicates.push(formatPath(this.#path));
  }

  #list(): JsonValue[] {
    const list: JsonValue[] = [];
    this.#at++;
    if (this.#closes(0x5d)) return list;
    for (;;) {
      this.#enter(list.length);
      list.push(this.#value());
      this.#path.pop();
      if (this.#endsAfterItem(0x5d)) return list;
    }
  }

  #enter(step: string | number): void {
    this.#path.push(step);
    if (this.#path.length > depthMax) throw new JsonSyntaxError("exceeded max depth");
  }

  #closes(code: number): boolean {
    this.#space();
    if (this.#text.charCodeAt(this.#at) !== code) return false;
    this.#at++;
    return true;
  }

  #endsAfterItem(close: number): boolean {
    this.#space();
    const code = this.#text.charCodeAt(this.#at);
    if (code !== close && code !== 0x2c) throw this.#unexpected();
    this.#at++;
    return code === close;
  }

  #string(): string {
    const start = ++this.#at;
    for (let at = start; at < this.#text.length; at++) {
      const code = this.#text.charCodeAt(at);
      if (code === 0x22) {
        this.#at = at + 1;
        return this.#text.slice(start, at);
      }
      if (code === 0x5c || code < 0x20) return this.#escapedString(start, at);
    }
    throw new JsonSyntaxError("unexpected end of JSON input");
  }

  /** Strings with escapes are rare: find the end, then let the engine's own parser read the text. */
  #escapedString(start: number, from: number): string {
    for (let at = from; at < this.#text.length; at++) {
      const code = this.#text.charCodeAt(at);
      if (code === 0x5c) at++;
      else if (code === 0x22) {
        this.#at = at + 1;
        return this.#unescape(this.#text.slice(start - 1, at + 1));
      }
    }
    throw new JsonSyntaxError("unexpected end of JSON input");
  }

  #unescape(quoted: string): string {
    try {
      const text = String(JSON.parse(quoted)).toWellFormed();
      if (!text.includes("\u0000")) return text;
    } catch (cause) {
      throw new JsonSyntaxError("invalid character or escape in string literal", { cause });
    }
    throw new JsonSyntaxError("the character NUL is not allowed in a string");
  }

  #number(): number {
    numberPattern.lastIndex = this.#at;
    const match = numberPattern.exec(this.#text);
    if (match === null) throw this.#unexpected();
    this.#at = numberPattern.lastIndex;
    const value = Number(match[0]);
    const isInteger = match[1] === undefined && match[2] === undefined;
    if (!Number.isFinite(value) || (isInteger && !Number.isSafeInteger(value))) {
      throw new JsonSyntaxError(`number ${match[0].slice(0, 40)} is out of range`);
    }
    return value;
  }

  #word<T extends JsonValue>(word: string, value: T): T {
    if (!this.#text.startsWith(word, this.#at)) throw this.#unexpected();
    this.#at += word.length;
    return value;
  }

  #space(): void {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#at++;
    }
  }

  #unexpected(): JsonSyntaxError {
    if (this.#at >= this.#text.length) return new JsonSyntaxError("unexpected end of JSON input");
    const character = JSON.stringify(this.#text[this.#at]);
    return new JsonSyntaxError(`invalid character ${character} at offset ${this.#at}`);
  }
}

/** Writes a field path the way Kubernetes does: `spec.containers[0].name`. */
export function formatPath(path: readonly (string | number)[]): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else text += text === "" ? step : `.${step}`;
  }
  return text;
}
