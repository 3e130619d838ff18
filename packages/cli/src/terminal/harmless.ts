/**
 * Text that others wrote, on its way to a terminal. What runs in a sandbox chooses its output, its names and its error messages, and a terminal does
 * what control characters say: it renames windows, answers on the reader's input, rewrites what stands there. So nothing but line ends and tabs
 * reaches a terminal as it is; what goes into a pipe or a file is left alone.
 */

/** Controls except tab and line feed; marks that reorder text, other line ends, and letters without a visible shape. */
const acting = /(?![\n\t])[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\u{e0000}-\u{e007f}]/gu;

/** Where Unicode has pictures of C0 controls, in their order, and of DEL. */
const firstPicture = 0x2400;
const deletePicture = "\u2421";

/** The same text without anything that a terminal would act on: pictures of C0 controls, the numbers of the rest. */
export function harmless(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(acting, (found) => {
    const code = found.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCharCode(firstPicture + code);
    return code === 0x7f ? deletePicture : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

const unguardedOf = new WeakMap<NodeJS.WriteStream, NodeJS.WriteStream>();

/** A stream that makes everything harmless which is written to it, if it is a terminal; else the stream itself. */
export function guarded(stream: NodeJS.WriteStream): NodeJS.WriteStream {
  if (stream.isTTY !== true) return stream;
  const text = new ChunkedText();
  const write = (chunk: string | Uint8Array, ...rest: unknown[]): boolean =>
    (stream.write as (...args: unknown[]) => boolean).call(stream, harmless(text.next(chunk)), ...rest);
  const guard = new Proxy(stream, {
    get(target, key) {
      if (key === "write") return write;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  unguardedOf.set(guard, stream);
  return guard;
}

/** The stream behind a guarded one: for what this command itself draws, for a terminal that was asked for, and for who asked for bytes as they are. */
export function unguarded(stream: NodeJS.WriteStream): NodeJS.WriteStream {
  return unguardedOf.get(stream) ?? stream;
}

/** Puts characters and line ends together that two chunks share. */
class ChunkedText {
  readonly #decoder = new TextDecoder("utf-8");
  #return = "";

  next(chunk: string | Uint8Array): string {
    const text = this.#return + (typeof chunk === "string" ? chunk : this.#decoder.decode(chunk, { stream: true }));
    this.#return = typeof chunk !== "string" && text.endsWith("\r") ? "\r" : "";
    return this.#return === "" ? text : text.slice(0, -1);
  }
}
